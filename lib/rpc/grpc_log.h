// Writes gRPC's messages as JSON lines to the process's log. Thread-safe.
#pragma once

#include <cstddef>

namespace gantry::rpc {

// Call it once, after log::Configure and before gRPC is used.
void TakeGrpcLog();

// Returns how many threads gRPC has failed to create for its servers' calls. Each failure leaks a
// thread of the ResourceQuota: add this number to the quota's limit of threads regularly.
size_t CallThreadsRefused();

}  // namespace gantry::rpc
