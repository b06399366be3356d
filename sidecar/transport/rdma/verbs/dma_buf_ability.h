// Whether a device registers dma-bufs, which it needs to reach GPU memory. Probed when the device
// is opened, and learned from refusals, to avoid attempts that must fail. Thread-safe.
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
  // Probes with an invalid descriptor: a device without support fails before it checks the
  // descriptor.
  explicit DmaBufAbility(VerbsDevice& device);

  // Fails if memory of this GPU is known to be unreachable (empty: of any GPU).
  Status Check(const std::string& gpu_uuid = {}) const EXCLUDES(mutex_);
  // Records a refusal for this GPU. Only kPathUnavailable is kept; other errors may be temporary.
  void Learn(const std::string& gpu_uuid, const Error& refusal) EXCLUDES(mutex_);

 private:
  std::optional<Error> none_;  // constant
  mutable Mutex mutex_;
  std::map<std::string, Error> by_gpu_ GUARDED_BY(mutex_);
};

}  // namespace gantry::transport
