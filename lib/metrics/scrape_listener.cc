#include "lib/metrics/scrape_listener.h"

#include <prometheus/text_serializer.h>

#include <iterator>
#include <utility>

#include "lib/http/error_response.h"
#include "lib/http/http_server.h"

namespace gantry::metrics {
namespace {

// What anybody in the network may make of it is bounded by these: a request is short, comes to its
// end soon and has no body, and a connection that wants nothing gives way to a new one.
http::HttpServerOptions OptionsOf(const std::string& address) {
  http::HttpServerOptions options;
  options.tcp_address = address;
  options.tcp_reach = http::Reach::kNetwork;
  options.threads_min = 1;
  options.threads_max = 4;
  options.connections_max = 16;
  options.connection.framing.body_bytes_max = 0;
  options.connection.request_time_max = milliseconds(2'000);
  options.connection.response_time_max = milliseconds(10'000);
  options.connection.input_spin = microseconds(0);
  return options;
}

http::Response Answer(const Sources& sources, const http::Request& request) {
  if (request.path != "/metrics" || request.method != "GET") {
    return http::ErrorResponse(
        Error(ErrorCode::kNotFound,
              "there is no " + std::string(request.method) + " " + std::string(request.path),
              "this port has GET /metrics and nothing else"));
  }
  http::Response response;
  response.content_type = "text/plain; version=0.0.4; charset=utf-8";
  response.body = Exposition(sources);
  return response;
}

}  // namespace

std::string Exposition(const Sources& sources) {
  // The last one first: what is asked for it brings what others have counted up to date.
  std::vector<prometheus::MetricFamily> all;
  for (auto source = sources.rbegin(); source != sources.rend(); ++source) {
    auto some = (*source)->Collect();
    all.insert(all.begin(), std::make_move_iterator(some.begin()),
               std::make_move_iterator(some.end()));
  }
  return prometheus::TextSerializer().Serialize(all);
}

ScrapeListener::ScrapeListener(std::unique_ptr<http::HttpServer> server)
    : server_(std::move(server)) {}
ScrapeListener::~ScrapeListener() = default;

int ScrapeListener::port() const { return server_->tcp_port(); }

Result<std::unique_ptr<ScrapeListener>> ScrapeListener::Start(const std::string& address,
                                                              Sources sources) {
  auto server = http::HttpServer::Start(
      OptionsOf(address), [sources = std::move(sources)](const http::Request& request) {
        return Answer(sources, request);
      });
  if (!server) {
    return Fail(
        server.error().code, "cannot serve metrics on '" + address + "': " + server.error().message,
        "say a free address as 0.0.0.0:9464, or [::]:9464 for IPv6, too; names are not looked up");
  }
  return std::unique_ptr<ScrapeListener>(new ScrapeListener(std::move(*server)));
}

}  // namespace gantry::metrics
