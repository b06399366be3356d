#include "gantryctl/sidecar_http.h"

#include <httplib.h>
#include <sys/socket.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "gantryctl/json_field.h"
#include "lib/base/fd_passing.h"

namespace gantry::gantryctl {

struct SidecarHttp::Connection {
  httplib::Client client;
};

SidecarHttp::SidecarHttp(std::string socket_path, milliseconds timeout)
    : socket_path_(std::move(socket_path)),
      connection_(new Connection{httplib::Client(socket_path_, 80)}) {
  connection_->client.set_address_family(AF_UNIX);
  connection_->client.set_connection_timeout(timeout);
  connection_->client.set_read_timeout(timeout);
  connection_->client.set_write_timeout(timeout);
}

SidecarHttp::~SidecarHttp() = default;

Result<HttpAnswer> SidecarHttp::Get(const std::string& target) {
  // The library would name a socket's path as the host.
  const httplib::Result result = connection_->client.Get(target, {{"Host", "localhost"}});
  if (result) return HttpAnswer{result->status, result->body};
  std::string why = httplib::to_string(result.error());
  if (auto probe = ConnectUnix(socket_path_, SOCK_STREAM); !probe) {
    why = std::move(probe).error().message;
  }
  return Fail(ErrorCode::kPeerUnavailable, "no sidecar answers at " + socket_path_ + ": " + why,
              "start gantry-sidecar, or name its socket with --socket");
}

Result<nlohmann::json> SidecarHttp::GetJson(const std::string& target) {
  ASSIGN_OR_RETURN(const HttpAnswer answer, Get(target));
  auto body = nlohmann::json::parse(answer.body, nullptr, /*allow_exceptions=*/false);
  if (body.is_discarded()) {
    return Fail(ErrorCode::kInternal,
                "GET " + target + " answered " + std::to_string(answer.status) + " without JSON");
  }
  if (answer.status / 100 == 2) return body;
  Error error(ErrorCodeByName(TextOf(body, "code")),
              "GET " + target + ": " + TextOf(body, "detail", TextOf(body, "title")),
              TextOf(body, "hint"));
  if (error.code == ErrorCode::kPeerUnavailable) error.code = ErrorCode::kInternal;
  return Fail(std::move(error));
}

}  // namespace gantry::gantryctl
