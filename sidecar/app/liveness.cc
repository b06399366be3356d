#include "sidecar/app/liveness.h"

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

class Liveness::AtLastThread {
 public:
  explicit AtLastThread(Liveness* liveness) : liveness_(*liveness) {
    if (liveness_.requests_at_last_thread_ == 0) liveness_.requests_.Beat();
    ++liveness_.requests_at_last_thread_;
  }
  AtLastThread(const AtLastThread&) = delete;
  AtLastThread& operator=(const AtLastThread&) = delete;
  ~AtLastThread() {
    liveness_.requests_.Beat();
    --liveness_.requests_at_last_thread_;
  }

 private:
  Liveness& liveness_;
};

http::Handler Liveness::Watching(http::Handler handler) {
  return [this, handler = std::move(handler)](const http::Request& request) {
    if (request.may_wait) return handler(request);
    const AtLastThread counted(this);  // a handler may throw
    return handler(request);
  };
}

Status Liveness::Check() const {
  if (const auto age = house_.Age(); age > stands_still_) {
    return StandStill("the housekeeping has stood still", age);
  }
  if (requests_at_last_thread_ > 0) {  // the age is read after it, as it is set before
    const auto age = requests_.Age();
    if (age > stands_still_) {
      return StandStill("every thread that serves requests has stood still", age);
    }
  }
  return {};
}

}  // namespace gantry
