// Measures the costs of copies of a worker's GPU, beside the jobs of the worker, on streams and
// memory of its own. Stateless; thread-safe.
#pragma once

#include "lib/base/clock.h"
#include "lib/gpu/shared/gpu_driver.h"
#include "sidecar/worker/channel/gpu_copy_costs.h"

namespace gantry::worker {

inline constexpr milliseconds kMeasurementMax{300};

// Copies from memory of the GPU with the ordinal `peer`, or from the context's own GPU when it is
// -1: then block_ns alone is measured. Takes 8 MiB on each of the two, 16 MiB on the only one.
// Costs of what the driver cannot do stay 0.
// kDeadlineExceeded: the GPU was too busy or too slow. Then it also waits for what is under way.
// kDeviceError: a value is implausible. Other errors are the driver's.
Result<MeasuredCosts> MeasureCosts(gpu::GpuContext& context, int peer, TimePoint deadline);

}  // namespace gantry::worker
