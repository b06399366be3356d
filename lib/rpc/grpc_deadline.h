// Converts deadlines for gRPC, which uses the system clock. Stateless; thread-safe.
#pragma once

#include <chrono>

#include "lib/base/clock.h"

namespace gantry::rpc {

std::chrono::system_clock::time_point GrpcDeadline(TimePoint deadline);

}  // namespace gantry::rpc
