// SIGTERM and SIGINT, taken by a thread of its own that also ends the process when it has not ended
// in time, whatever else stands still.
#pragma once

#include <atomic>
#include <functional>
#include <memory>

#include "lib/base/clock.h"
#include "lib/base/result.h"

namespace gantry {

class StopSignal {
 public:
  static constexpr int kExitForced = 1;

  // `before_force`: what is said before the process ends by force; it has a second. Call Watch
  // before other threads start: they inherit that the signals are blocked.
  static Result<StopSignal> Watch(milliseconds time_to_stop, std::function<void()> before_force);

  // The number of the signal, once it has come.
  int Await() const;

 private:
  explicit StopSignal(std::shared_ptr<std::atomic<int>> signal) : signal_(std::move(signal)) {}

  std::shared_ptr<std::atomic<int>> signal_;  // 0: none yet
};

}  // namespace gantry
