// Refuses plans whose destinations share bytes with each other or with a source: the outcome would
// depend on the order of copies. Pure functions; thread-safe.
#pragma once

#include "lib/base/result.h"
#include "sidecar/plan/plan_builder.h"

namespace gantry::engine {

// True when whole buffers of the destination side overlap each other, or overlap one of the source
// side: only then can block lists without duplicates collide. Cost grows with the pieces, not with
// the blocks.
bool BuffersMayCollide(const PlanInput& input);

// Checks every segment of the plan. The error names the request's items in message and field.
Status CheckOverlap(const transport::MovePlan& plan, const PlanInput& input);

}  // namespace gantry::engine
