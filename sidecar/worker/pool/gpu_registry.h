// The GPUs that the workers see, and the GPU of each worker's context. All workers share a
// container, so the list of the first one with a GPU holds for all. Thread-safe.
#pragma once

#include <atomic>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/mutex.h"
#include "sidecar/worker/channel/worker_greeting.h"
#include "sidecar/worker/pool/worker_slot.h"

namespace gantry::worker {

class GpuRegistry {
 public:
  // Returns the GPU of the worker with this greeting. No place: the first worker did not see that
  // GPU.
  WorkerGpu Take(int worker, const Greeting& greeting) EXCLUDES(mutex_);

  // Returns UUIDs, or why no worker has a GPU.
  Result<std::vector<std::string>> gpus() const EXCLUDES(mutex_);
  Status HasGpus() const EXCLUDES(mutex_);  // like gpus(), without the UUIDs
  // Index of the GPU with this UUID; -1: no worker sees it. Never blocks.
  int PlaceOf(std::string_view uuid) const;
  // Its PCI address; empty: no worker sees it. Never blocks.
  std::string PciAddressOf(std::string_view uuid) const;
  // The driver's sharing rules; defaults while no worker has a GPU. Never blocks.
  gpu::SharingRules sharing() const { return known_.load() ? sharing_ : gpu::SharingRules(); }

 private:
  mutable Mutex mutex_;
  // These three are written once, before known_ is true. The addresses are parallel to the UUIDs.
  std::vector<std::string> gpus_;
  std::vector<std::string> pci_addresses_;
  gpu::SharingRules sharing_;
  std::atomic<bool> known_ = false;
  // Index of the worker that why_none_ comes from.
  int says_why_ GUARDED_BY(mutex_) = std::numeric_limits<int>::max();
  Status why_none_ GUARDED_BY(mutex_) = Fail(ErrorCode::kPathUnavailable,
                                             "no copy worker has been asked yet");
};

}  // namespace gantry::worker
