// The GPUs that the workers see, and which of them a worker has its context on. What the first one
// with a GPU sees holds for all, as they are processes of one container. Thread-safe.
#pragma once

#include <string>
#include <vector>

#include "lib/base/mutex.h"
#include "sidecar/worker/worker_process.h"

namespace gantry::worker {

class GpuHomes {
 public:
  // The place of the worker's GPU among gpus(); -1: it has none, or one that the first did not see.
  int Take(const Greeting& greeting) EXCLUDES(mutex_);

  // UUIDs, or why no worker has a GPU.
  Result<std::vector<std::string>> gpus() const EXCLUDES(mutex_);

 private:
  mutable Mutex mutex_;
  std::vector<std::string> gpus_ GUARDED_BY(mutex_);
  bool asked_ GUARDED_BY(mutex_) = false;
  Status why_none_ GUARDED_BY(mutex_) = Fail(ErrorCode::kPathUnavailable,
                                             "no copy worker has been asked yet");
};

}  // namespace gantry::worker
