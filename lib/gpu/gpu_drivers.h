// The vendors that this build knows, in the order in which they are tried. Thread-safe.
#pragma once

#include <memory>

#include "lib/gpu/shared/gpu_driver.h"

namespace gantry::gpu {

// The driver of the GPUs of this machine, initialised: a process that forks afterwards has children
// that cannot use GPUs. not_found when no vendor's library is installed, with
// what each of them said; device_error when one is installed and does not work.
Result<std::unique_ptr<GpuDriver>> LoadGpuDriver();

}  // namespace gantry::gpu
