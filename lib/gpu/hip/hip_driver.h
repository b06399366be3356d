// AMD GPUs, by the HIP runtime's library. Thread-safe.
#pragma once

#include <memory>
#include <string>

#include "lib/gpu/hip/hip_calls.h"
#include "lib/gpu/shared/gpu_driver.h"

namespace gantry::gpu {

// `library` as dlopen takes it.
Result<std::unique_ptr<GpuDriver>> LoadHipDriver(const std::string& library);

}  // namespace gantry::gpu
