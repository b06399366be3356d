#include "gantryctl/sidecar_http.h"

#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>
#include <utility>

#include "lib/http/reply_problem.h"

namespace gantry::gantryctl {

Result<http::HttpReply> SidecarHttp::Get(const std::string& target) {
  auto reply =
      http_.Send({.method = "GET", .target = target, .repeatable = true, .timeout = timeout_});
  if (reply) return reply;
  return Fail(Explain(std::move(reply).error()));
}

Error SidecarHttp::Explain(Error error) const {
  const ErrorCode code = std::exchange(error.code, ErrorCode::kPeerUnavailable);
  if (code == ErrorCode::kDeadlineExceeded) {
    return {error.code,
            "the sidecar at " + socket_path() + " runs and did not answer within " +
                std::to_string(timeout_.count() / 1000) + " s",
            "it stands still or has too much to do: see its log and its liveness probe"};
  }
  if (code == ErrorCode::kPeerLost || code == ErrorCode::kMalformedBody) {
    return {error.code,
            "what listens at " + socket_path() + " ended the connection without an answer (" +
                error.message + ")",
            "the sidecar is ending, or it is not its API socket: name that with --socket"};
  }
  const bool denied = ::access(socket_path().c_str(), W_OK) != 0 && errno == EACCES;
  error.message = "no sidecar answers at " + socket_path() + ": " + error.message;
  if (!denied) {
    error.hint += error.hint.empty() ? "" : "; ";
    error.hint += "start gantry-sidecar, or name its socket with --socket";
  }
  return error;
}

Result<nlohmann::json> SidecarHttp::GetJson(const std::string& target) {
  auto reply = Get(target);
  if (!reply) return Fail(std::move(reply).error());
  auto body = http::BodyOrProblem(std::move(reply));
  if (!body) {
    Error error = std::move(body).error().WithContext("GET " + target);
    if (error.code == ErrorCode::kPeerUnavailable) error.code = ErrorCode::kInternal;
    return Fail(std::move(error));
  }
  auto tree = nlohmann::json::parse(*body, nullptr, /*allow_exceptions=*/false);
  if (!tree.is_discarded()) return tree;
  return Fail(ErrorCode::kInternal, "GET " + target + " was answered without JSON");
}

}  // namespace gantry::gantryctl
