// The GPUs as one copy worker uses them: the driver and one context, in which it maps the memory of
// all GPUs that this reaches. Memory of the others has a context of its own GPU, which is opened
// with the first of it. Open is called first, and the rest belongs to the same thread.
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
  // Loads the driver, and opens the context of worker `index`: the workers take the GPUs in turn,
  // so that a copy finds workers on both of its GPUs. The first `workers_max` of them do, or with
  // kAutomatic as many as pay. kPathUnavailable where there is no driver, no GPU, or no turn left;
  // the driver's own error where its context cannot be had.
  Status Open(int index, int workers_max);
  static constexpr int kAutomatic = -1;

  // Gives the context back.
  void Close();

  // Of those that the driver sees, the context's first; empty before Open.
  const std::vector<std::string>& uuids() const { return uuids_; }
  gpu::SharingRules sharing() const;  // REQUIRES a context
  // Where one of these is on the PCI bus; empty: it is none of them.
  std::string PciAddressOf(const std::string& uuid) const;

  const std::shared_ptr<gpu::GpuContext>& context() const { return context_; }  // null before Open
  // Whether kernels of the context may follow addresses of this GPU's memory.
  bool Reaches(const std::string& uuid) const { return reached_.contains(uuid); }
  // As much memory of the worker's own on each of the other GPUs that it reaches, for the context
  // to use; the log says which refuse. REQUIRES a context, and a multiple of 2 MiB.
  std::vector<std::unique_ptr<gpu::GpuMemory>> AllocateOnOthers(uint64_t bytes) const;
  // The context in which memory of the GPU is mapped. kPathUnavailable when the driver does not see
  // that one.
  Result<std::shared_ptr<gpu::GpuContext>> ContextFor(const std::string& uuid);

 private:
  Status Load();

  std::unique_ptr<gpu::GpuDriver> driver_;
  std::shared_ptr<gpu::GpuContext> context_;
  std::vector<std::string> uuids_;
  std::set<std::string> reached_;
  std::map<std::string, std::shared_ptr<gpu::GpuContext>> others_;  // of those that are not
};

}  // namespace gantry::memory
