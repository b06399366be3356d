// The costs of copies in a worker's ring: the pool wants them, the worker measures and publishes
// them once. Any thread reads them without a lock, beside the requests of the control socket. They
// outlive the worker. The pool trusts none of the values: see GpuCosts::Take. Thread-safe.
#pragma once

#include <optional>

#include "sidecar/worker/channel/gpu_copy_costs.h"
#include "sidecar/worker/channel/ring_layout.h"

namespace gantry::worker {

// Called by the pool before the first worker starts.
void WantCosts(RingLayout* ring);
// Called by the worker: true when it is to measure now. False from then on, also for its
// successors: a measurement that ended a worker is not made again.
bool BeginCosts(RingLayout* ring);
void PublishCosts(const MeasuredCosts& measured, RingLayout* ring);
// Nothing while there are none.
std::optional<MeasuredCosts> ReadCosts(const RingLayout& ring);

}  // namespace gantry::worker
