#include "gantryctl/sidecar_http.h"

#include <httplib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
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
      timeout_(timeout),
      connection_(new Connection{httplib::Client(socket_path_, 80)}) {
  connection_->client.set_address_family(AF_UNIX);
  connection_->client.set_connection_timeout(timeout);
  connection_->client.set_read_timeout(timeout);
  connection_->client.set_write_timeout(timeout);
}

SidecarHttp::~SidecarHttp() = default;

Result<HttpAnswer> SidecarHttp::Get(const std::string& target) {
  // The library would name a socket's path as the host.
  const TimePoint start = Clock::now();
  const httplib::Result result = connection_->client.Get(target, {{"Host", "localhost"}});
  if (result) return HttpAnswer{result->status, result->body};
  const auto waited = std::chrono::duration_cast<milliseconds>(Clock::now() - start);
  return Fail(Explain(httplib::to_string(result.error()), waited));
}

Error SidecarHttp::Explain(const std::string& what_happened, milliseconds waited) const {
  if (waited >= timeout_) {
    return {ErrorCode::kPeerUnavailable,
            "the sidecar at " + socket_path_ + " runs and did not answer within " +
                std::to_string(timeout_.count() / 1000) + " s",
            "it stands still or has too much to do: see its log and its liveness probe"};
  }
  auto probe = ConnectUnix(socket_path_, SOCK_STREAM, timeout_);
  if (probe) {
    return {ErrorCode::kPeerUnavailable,
            "what listens at " + socket_path_ + " ended the connection without an answer (" +
                what_happened + ")",
            "the sidecar is ending, or it is not its API socket: name that with --socket"};
  }
  Error error = std::move(probe).error();
  const bool denied = ::access(socket_path_.c_str(), W_OK) != 0 && errno == EACCES;
  error.code = ErrorCode::kPeerUnavailable;
  error.message = "no sidecar answers at " + socket_path_ + ": " + error.message;
  if (!denied) {
    error.hint += error.hint.empty() ? "" : "; ";
    error.hint += "start gantry-sidecar, or name its socket with --socket";
  }
  return error;
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
