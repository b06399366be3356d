// The GPUs of a copy worker: the driver, loaded when it is first asked for, and one context, on the
// GPU of the first memory. Memory of every other GPU is mapped there, too: so it moves at the full
// speed of NVLink without more, and a worker takes memory of one GPU only. The sidecar's own
// process has none. One thread at a time; the context may be used by others.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lib/gpu/gpu_driver.h"

namespace gantry::memory {

class GpuDevices {
 public:
  // The UUIDs of those that this process can use; path_unavailable says why there are none.
  Result<std::vector<std::string>> Uuids();
  // Where memory of the GPU with this UUID is mapped. path_unavailable when this process does not
  // see that GPU.
  Result<std::shared_ptr<gpu::GpuContext>> ContextFor(const std::string& uuid);

 private:
  Status Load();

  std::unique_ptr<gpu::GpuDriver> driver_;
  std::shared_ptr<gpu::GpuContext> context_;
};

}  // namespace gantry::memory
