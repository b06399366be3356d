#include "sidecar/worker/pool/gpu_registry.h"

#include <algorithm>

namespace gantry::worker {

WorkerGpu GpuRegistry::Take(int worker, const Greeting& greeting) {
  const MutexLock lock(mutex_);
  if (!greeting.status || greeting.gpus.empty()) {
    // The lowest one's, whichever greets first: others may only have had no turn.
    if (!greeting.status && worker <= says_why_) {
      says_why_ = worker;
      why_none_ = greeting.status;
    }
    return {};
  }
  if (!known_.load()) {
    for (const Greeting::Gpu& gpu : greeting.gpus) {
      gpus_.push_back(gpu.uuid);
      pci_addresses_.push_back(gpu.pci_address);
    }
    // In the driver's order, whoever comes first: each worker begins with its own.
    const size_t own = static_cast<size_t>(worker) % gpus_.size();
    for (std::vector<std::string>* const each : {&gpus_, &pci_addresses_}) {
      std::rotate(each->begin(), each->end() - static_cast<ptrdiff_t>(own), each->end());
    }
    sharing_ = greeting.sharing;
    known_ = true;
  }
  WorkerGpu worker_gpu;
  worker_gpu.place = PlaceOf(greeting.gpus.front().uuid);
  worker_gpu.memory = greeting.memory;
  for (const Greeting::Gpu& gpu : greeting.gpus) {
    const int place = PlaceOf(gpu.uuid);
    if (gpu.reached && place >= 0 && place < WorkerGpu::kPlaces)
      worker_gpu.reached |= uint64_t{1} << place;
  }
  return worker_gpu;
}

int GpuRegistry::PlaceOf(std::string_view uuid) const {
  if (!known_.load()) return -1;
  const auto place = std::find(gpus_.begin(), gpus_.end(), uuid);
  return place == gpus_.end() ? -1 : static_cast<int>(place - gpus_.begin());
}

std::string GpuRegistry::PciAddressOf(std::string_view uuid) const {
  const int place = PlaceOf(uuid);
  return place < 0 ? std::string() : pci_addresses_[static_cast<size_t>(place)];
}

Result<std::vector<std::string>> GpuRegistry::gpus() const {
  RETURN_IF_ERROR(HasGpus());
  return gpus_;
}

Status GpuRegistry::HasGpus() const {
  if (known_.load()) return {};
  const MutexLock lock(mutex_);
  return why_none_;
}

}  // namespace gantry::worker
