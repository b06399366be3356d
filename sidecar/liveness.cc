#include "sidecar/liveness.h"

#include <string>
#include <utility>

namespace gantry {
namespace {

Status StandStill(const char* what, nanoseconds since) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(since).count();
  return Fail(ErrorCode::kInternal, std::string(what) + " for " + std::to_string(seconds) + " s",
              "a thread hangs; take the stacks of all threads (gdb -p PID, thread apply all bt), "
              "and start the sidecar again");
}

}  // namespace

http::Handler Liveness::Watching(http::Handler handler) {
  return [this, handler = std::move(handler)](const http::Request& request) {
    if (request.may_wait) return handler(request);
    if (requests_at_last_thread_++ == 0) requests_.Beat();
    http::Response response = handler(request);
    requests_.Beat();
    --requests_at_last_thread_;
    return response;
  };
}

Status Liveness::Check() const {
  if (const auto age = house_.Age(); age > stands_still_) {
    return StandStill("the housekeeping has stood still", age);
  }
  const auto age = requests_.Age();
  if (requests_at_last_thread_ > 0 && age > stands_still_) {
    return StandStill("every thread that serves requests has stood still", age);
  }
  return {};
}

}  // namespace gantry
