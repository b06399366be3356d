// NVIDIA GPUs, by the CUDA driver's library. Thread-safe.
#pragma once

#include <memory>
#include <string>

#include "lib/gpu/cuda/cuda_calls.h"
#include "lib/gpu/shared/gpu_driver.h"

namespace gantry::gpu {

// `library` as dlopen takes it.
Result<std::unique_ptr<GpuDriver>> LoadCudaDriver(const std::string& library);

}  // namespace gantry::gpu
