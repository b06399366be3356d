// The GPUs of one copy worker: the driver and one context. The context maps memory of all GPUs that
// it can access. Memory of other GPUs uses a context on that GPU, opened at first need. One thread
// makes all calls, Open first.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "lib/gpu/shared/gpu_driver.h"

namespace gantry::memory {

class GpuDevices {
 public:
  // Loads the driver and opens the context of worker `index`. Workers take GPUs round-robin, so
  // that copies find workers on both of their GPUs. Only the first `workers_max` get one;
  // kAutomatic decides by the number of GPUs. kPathUnavailable: no driver, no GPU, or no turn.
  // Otherwise the driver's error.
  Status Open(int index, int workers_max);
  static constexpr int kAutomatic = -1;

  // Closes the context.
  void Close();

  // All GPUs that the driver sees, the context's first; empty before Open.
  const std::vector<std::string>& uuids() const { return uuids_; }
  gpu::SharingRules sharing() const;  // REQUIRES a context
  // The PCI address of one of these; empty for any other.
  std::string PciAddressOf(const std::string& uuid) const;

  const std::shared_ptr<gpu::GpuContext>& context() const { return context_; }  // null before Open
  // True when kernels of the context may access this GPU's memory.
  bool Reaches(const std::string& uuid) const { return reached_.contains(uuid); }
  // Ordinal of the first GPU after the context's that its kernels may access; -1: there is none.
  int NextReached() const;
  // Allocates `bytes` on each other GPU that the context can access, and logs failures. REQUIRES a
  // context, and a multiple of 2 MiB.
  std::vector<std::unique_ptr<gpu::GpuMemory>> AllocateOnOthers(uint64_t bytes) const;
  // Returns the context that maps memory of this GPU. kPathUnavailable when the driver does not see
  // it.
  Result<std::shared_ptr<gpu::GpuContext>> ContextFor(const std::string& uuid);

 private:
  Status Load();

  std::unique_ptr<gpu::GpuDriver> driver_;
  std::shared_ptr<gpu::GpuContext> context_;
  std::vector<std::string> uuids_;
  std::set<std::string> reached_;
  // Contexts on GPUs that context_ cannot access.
  std::map<std::string, std::shared_ptr<gpu::GpuContext>> others_;
};

}  // namespace gantry::memory
