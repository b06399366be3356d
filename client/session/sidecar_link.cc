#include "client/session/sidecar_link.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

#include "lib/base/json_text.h"
#include "lib/base/url_escape.h"
#include "lib/http/reply_problem.h"

namespace gantry::client {
namespace {

constexpr std::array<std::string_view, 5> kMethods = {"GET", "PUT", "POST", "PATCH", "DELETE"};

Status CheckTarget(std::string_view method, std::string_view target) {
  if (std::find(kMethods.begin(), kMethods.end(), method) == kMethods.end()) {
    return Fail(ErrorCode::kInvalidArgument, "there is no method " + JsonQuote(method),
                "GET, PUT, POST, PATCH or DELETE", "method");
  }
  const bool printable =
      std::all_of(target.begin(), target.end(), [](char c) { return c > ' ' && c < '\x7f'; });
  if (!target.starts_with('/') || !printable) {
    return Fail(ErrorCode::kInvalidArgument, JsonQuote(target) + " is not the path of a resource",
                "start with / and percent-encode what is not printable ASCII", "target");
  }
  return {};
}

constexpr char kLostHint[] =
    "the lease is lost, the sidecar was probably restarted: open a new client";

// Peers have codes of their own for it.
Error Lost(Error error) {
  if (error.code != ErrorCode::kPeerLost && error.code != ErrorCode::kPeerUnavailable) return error;
  error.code = ErrorCode::kSidecarLost;
  error.hint = kLostHint;
  return error;
}

}  // namespace

SidecarLink::SidecarLink(SessionOptions options, std::string api_socket)
    : options_(std::move(options)), http_(std::move(api_socket)), silence_(options_.timeout) {}

Status SidecarLink::Attach() {
  const std::string target = "/v1/workloads/" + UrlEscape(options_.workload);
  const std::string body = LeaseBody(options_.engine_id);
  ASSIGN_OR_RETURN(const std::string answer, Exchange({.method = "PUT",
                                                       .target = target,
                                                       .body = body,
                                                       .repeatable = true,
                                                       .timeout = options_.timeout}));
  ASSIGN_OR_RETURN(lease_answer_, ReadLease(answer));
  std::string path = options_.handoff_socket;
  if (path.empty()) {
    // The sidecar's own path may not be the one under which its directory is mounted here.
    path = http_.socket_path().substr(0, http_.socket_path().rfind('/') + 1) + "handoff.sock";
    if (::access(path.c_str(), F_OK) != 0) path = lease_answer_.handoff_socket;
  }
  auto lease = HandoffLease::Attach(path, lease_answer_.lease_token, options_.timeout);
  if (!lease) return Fail(std::move(lease).error().WithContext("attaching the lease"));
  lease_ = *std::move(lease);
  return {};
}

Status SidecarLink::Close(milliseconds longest) {
  if (closed_.exchange(true)) return {};
  Status outcome;
  // The name may belong to a newer registration once this lease is gone.
  if (longest.count() > 0 && lease_->alive()) {
    const std::string target = "/v1/workloads/" + UrlEscape(options_.workload);
    auto reply = http_.Send({.method = "DELETE",
                             .target = target,
                             .bearer = lease_answer_.lease_token,
                             .timeout = std::min(longest, options_.timeout)});
    if (!reply) {
      outcome = Fail(std::move(reply).error());
    } else if (reply->status != 404) {
      if (auto answer = http::BodyOrProblem(*std::move(reply)); !answer)
        outcome = Fail(answer.error());
    }
  }
  http_.Close();
  lease_->End();
  return outcome;
}

Status SidecarLink::Ping() {
  if (closed_) return Fail(Closed());
  return lease_->Ping();
}

Result<std::string> SidecarLink::Exchange(http::HttpRequest request, std::string* raw) {
  if (closed_) return Fail(Closed());
  request.bearer = lease_answer_.lease_token;
  auto reply = http_.Send(request);
  if (reply) {
    silence_.End();
  } else {
    if (reply.error().code == ErrorCode::kDeadlineExceeded) silence_.Begin();
    return Fail(lease_ == nullptr ? std::move(reply).error() : Lost(std::move(reply).error()));
  }
  if (raw != nullptr) *raw = reply->body;
  auto body = http::BodyOrProblem(*std::move(reply));
  // Another sidecar has answered, which knows nothing of this client, or the lease was ended.
  if (!body && lease_ != nullptr && !lease_->alive()) {
    body.error().code = ErrorCode::kSidecarLost;
    body.error().hint = kLostHint;
  }
  return body;
}

Result<std::string> SidecarLink::Post(std::string_view target, std::string_view body,
                                      uint64_t wait_ms) {
  return Exchange({.method = "POST",
                   .target = target,
                   .body = body,
                   .repeatable = true,  // each names what it makes, or asks only
                   .timeout = options_.timeout + Bounded(wait_ms)});
}

Result<std::string> SidecarLink::Request(std::string_view method, std::string_view target,
                                         std::string_view body, uint64_t wait_ms) {
  RETURN_IF_ERROR(CheckTarget(method, target));
  return Exchange({.method = method,
                   .target = target,
                   .body = body,
                   .repeatable = method != "POST" && method != "PATCH",
                   .timeout = options_.timeout + Bounded(wait_ms)});
}

Result<std::vector<std::string>> SidecarLink::HandOver(std::span<const int> fds) {
  if (closed_) return Fail(Closed());
  return lease_->HandOver(fds);
}

Status SidecarLink::ReleaseFd(const std::string& token) {
  Status released = lease_->Release({token});
  if (!released && released.error().code == ErrorCode::kDeadlineExceeded) silence_.Begin();
  return released;
}

void SidecarLink::ReleaseFds(const std::vector<std::string>& tokens) {
  for (size_t i = 0; i < tokens.size() && is_alive();) {
    const size_t end = std::min(tokens.size(), i + wire::kHandoffTokensMax);
    // Without an answer the lease is lost, and with it the descriptors.
    static_cast<void>(lease_->Release({tokens.begin() + static_cast<std::ptrdiff_t>(i),
                                       tokens.begin() + static_cast<std::ptrdiff_t>(end)}));
    i = end;
  }
}

Status SidecarLink::ResendUnheard() {
  Unheard unheard = silence_.Take();
  while (!unheard.targets.empty()) {
    auto answer = Exchange({.method = "DELETE",
                            .target = unheard.targets.back(),
                            .repeatable = true,
                            .timeout = options_.timeout + Bounded(kDropDrainMs)});
    if (!answer && silence_.IsOn()) {
      for (std::string& target : unheard.targets) silence_.KeepTarget(std::move(target));
      for (std::string& token : unheard.tokens) silence_.KeepToken(std::move(token));
      return Fail(std::move(answer).error());
    }
    unheard.targets.pop_back();
  }
  ReleaseFds(unheard.tokens);
  return {};
}

milliseconds SidecarLink::Bounded(uint64_t wait_ms) {
  constexpr uint64_t kWaitMsMax = uint64_t{1000} * 3600 * 24 * 365;
  return milliseconds(static_cast<int64_t>(std::min(wait_ms, kWaitMsMax)));
}

}  // namespace gantry::client
