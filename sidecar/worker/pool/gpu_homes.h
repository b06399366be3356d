// The GPUs that the workers see, and which of them a worker has its context on. What the first one
// with a GPU sees holds for all, as they are processes of one container. Thread-safe.
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

class GpuHomes {
 public:
  // Where the worker is that greets so; it has no place when the first did not see its GPU.
  GpuHome Take(int worker, const Greeting& greeting) EXCLUDES(mutex_);

  // UUIDs, or why no worker has a GPU.
  Result<std::vector<std::string>> gpus() const EXCLUDES(mutex_);
  Status HasGpus() const EXCLUDES(mutex_);  // the same without the UUIDs
  // Of the GPU with this UUID; -1: no worker sees it. Does not wait.
  int PlaceOf(std::string_view uuid) const;
  // Its PCI address; empty: no worker sees it. Does not wait.
  std::string PciAddressOf(std::string_view uuid) const;
  // Of the workers' driver; nothing special while no worker has a GPU. Does not wait.
  gpu::SharingRules sharing() const { return known_.load() ? sharing_ : gpu::SharingRules(); }

 private:
  mutable Mutex mutex_;
  // Written once, before known_ is true. The addresses are parallel to the UUIDs.
  std::vector<std::string> gpus_;
  std::vector<std::string> pci_addresses_;
  gpu::SharingRules sharing_;
  std::atomic<bool> known_ = false;
  int says_why_ GUARDED_BY(mutex_) = std::numeric_limits<int>::max();  // the worker
  Status why_none_ GUARDED_BY(mutex_) = Fail(ErrorCode::kPathUnavailable,
                                             "no copy worker has been asked yet");
};

}  // namespace gantry::worker
