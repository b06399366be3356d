#include "sidecar/api/asked_waits.h"

#include <utility>

#include "sidecar/api/request_reading.h"

namespace gantry::api {

AskedWaits::Wait::Wait(Wait&& other) noexcept
    : waits_(std::exchange(other.waits_, nullptr)), count_(other.count_), until_(other.until_) {}

AskedWaits::Wait::~Wait() {
  if (waits_ != nullptr) waits_->End(count_);
}

Result<AskedWaits::Wait> AskedWaits::Begin(const http::Request& request, std::string_view workload,
                                           std::optional<uint64_t> wait_ms) {
  ASSIGN_OR_RETURN(const TimePoint until, WaitUntil(request, wait_ms));
  if (wait_ms.value_or(0) == 0) return Wait(until);
  const MutexLock lock(mutex_);
  auto count = counts_.find(workload);
  const size_t has = count == counts_.end() ? 0 : count->second;
  const size_t free = most_ - waiting_;
  if (has >= free) {
    return Fail(ErrorCode::kResourceExhausted,
                std::string(workload) + " waits in " + std::to_string(has) + " requests, and " +
                    std::to_string(free) + " of the " + std::to_string(most_) +
                    " that may wait at once are free",
                "a workload may wait in as many requests as are free: wait in fewer, ask with "
                "wait_ms=0, or raise --http-threads-max");
  }
  if (count == counts_.end()) count = counts_.emplace(std::string(workload), 0).first;
  ++count->second;
  ++waiting_;
  return Wait(this, count, until);
}

void AskedWaits::End(Counts::iterator count) {
  const MutexLock lock(mutex_);
  --waiting_;
  if (--count->second == 0) counts_.erase(count);
}

}  // namespace gantry::api
