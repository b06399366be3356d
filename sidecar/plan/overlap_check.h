// Refuses plans whose destinations overlap each other or a source, since the outcome would depend
// on the order of copies. Pure functions; thread-safe.
#pragma once

#include "lib/base/result.h"
#include "sidecar/plan/plan_builder.h"

namespace gantry::engine {

// True when buffers of the destination side overlap each other or a source buffer. Only then can
// block lists without duplicates collide. The cost grows with the pieces, not the blocks.
bool BuffersMayCollide(const PlanInput& input);

// Checks every segment of the plan. The error names the request's items in message and field.
Status CheckOverlap(const transport::MovePlan& plan, const PlanInput& input);

}  // namespace gantry::engine
