// Whether the sidecar stands still, so that many objects that end wait for it once and not once
// each, and what it has not heard of meanwhile. Thread-safe.
#pragma once

#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "lib/base/clock.h"
#include "lib/base/mutex.h"

namespace gantry::client {

// Objects that ended here and are still there at the sidecar.
struct Unheard {
  std::vector<std::string> targets;  // of DELETE
  std::vector<std::string> tokens;   // of descriptors
};

class Silence {
 public:
  // `length`: of a silence that no answer ends. Then the sidecar is asked again.
  explicit Silence(milliseconds length) : length_(length) {}

  void Begin() { until_ = (Clock::now() + length_).time_since_epoch().count(); }
  void End() {
    if (until_.load(std::memory_order_relaxed) != 0) until_ = 0;
  }
  bool IsOn() const {
    const auto until = until_.load(std::memory_order_relaxed);
    return until != 0 && Clock::now().time_since_epoch().count() < until;
  }

  void KeepTarget(std::string target) {
    MutexLock lock(mutex_);
    unheard_.targets.push_back(std::move(target));
  }
  void KeepToken(std::string token) {
    MutexLock lock(mutex_);
    unheard_.tokens.push_back(std::move(token));
  }
  Unheard Take() {
    MutexLock lock(mutex_);
    return std::exchange(unheard_, {});
  }

 private:
  const milliseconds length_;
  std::atomic<Clock::rep> until_{0};  // 0: there is none
  Mutex mutex_;
  Unheard unheard_ GUARDED_BY(mutex_);
};

}  // namespace gantry::client
