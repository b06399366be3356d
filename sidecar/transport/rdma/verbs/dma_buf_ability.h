// Whether a device registers dma-bufs, by which it reaches memory of GPUs: asked when it is opened,
// and learned from what it refuses, so that nothing is tried that is known to fail. Thread-safe.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "lib/base/mutex.h"
#include "lib/base/result.h"
#include "sidecar/transport/rdma/verbs/verbs.h"

namespace gantry::transport {

class DmaBufAbility {
 public:
  // Tries it without a dma-buf: a device that has no way for any says so before it looks.
  explicit DmaBufAbility(VerbsDevice& device);

  // Why there is no way to memory of this GPU (empty: of any), if that is known.
  Status Check(const std::string& gpu_uuid = {}) const EXCLUDES(mutex_);
  // What it refused a dma-buf of this GPU with. Only kPathUnavailable is kept: all else may be
  // another time.
  void Learn(const std::string& gpu_uuid, const Error& refusal) EXCLUDES(mutex_);

 private:
  std::optional<Error> none_;  // constant
  mutable Mutex mutex_;
  std::map<std::string, Error> by_gpu_ GUARDED_BY(mutex_);
};

}  // namespace gantry::transport
