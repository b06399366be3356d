#include "sidecar/worker/gpu_homes.h"

#include <algorithm>
#include <utility>

namespace gantry::worker {

int GpuHomes::Take(const Greeting& greeting) {
  const MutexLock lock(mutex_);
  if (!greeting.status || greeting.gpus.empty()) {
    // The first one's: later ones may only have had no turn.
    if (!greeting.status && !std::exchange(asked_, true)) why_none_ = greeting.status;
    return -1;
  }
  if (gpus_.empty()) gpus_ = greeting.gpus;
  const auto place = std::find(gpus_.begin(), gpus_.end(), greeting.gpus.front());
  return place == gpus_.end() ? -1 : static_cast<int>(place - gpus_.begin());
}

Result<std::vector<std::string>> GpuHomes::gpus() const {
  const MutexLock lock(mutex_);
  if (gpus_.empty()) return Fail(why_none_.error());
  return gpus_;
}

}  // namespace gantry::worker
