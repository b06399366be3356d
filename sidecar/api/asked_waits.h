// Limits requests that wait at their clients' wish. Each occupies a thread, so their number is
// bounded and shared between workloads. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "lib/base/clock.h"
#include "lib/base/mutex.h"
#include "lib/base/result.h"
#include "lib/http/http_exchange.h"

namespace gantry::api {

class AskedWaits {
  using Counts = std::map<std::string, size_t, std::less<>>;  // by workload; never 0

 public:
  // One request's wait; it ends on destruction.
  class Wait {
   public:
    explicit Wait(TimePoint until) : until_(until) {}
    Wait(AskedWaits* waits, Counts::iterator count, TimePoint until)
        : waits_(waits), count_(count), until_(until) {}
    Wait(Wait&& other) noexcept;
    Wait& operator=(Wait&&) = delete;
    ~Wait();
    TimePoint until() const { return until_; }

   private:
    AskedWaits* waits_ = nullptr;  // null: not counted
    Counts::iterator count_;
    TimePoint until_;
  };

  // `most` limits the simultaneous waits; other threads serve requests that must not be delayed.
  explicit AskedWaits(size_t most) : most_(most) {}

  // Lets `request` wait for `wait_ms`, at most kWaitMax, on behalf of `workload`. Without wait_ms,
  // or with 0, it waits until now. A workload may start a wait while it has fewer than are free. So
  // alone it gets half, and a second workload always finds room. Else kResourceExhausted.
  Result<Wait> Begin(const http::Request& request, std::string_view workload,
                     std::optional<uint64_t> wait_ms);

 private:
  void End(Counts::iterator count);

  const size_t most_;
  Mutex mutex_;
  Counts counts_ GUARDED_BY(mutex_);
  size_t waiting_ GUARDED_BY(mutex_) = 0;
};

}  // namespace gantry::api
