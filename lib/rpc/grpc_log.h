// Writes gRPC's messages as JSON lines of the process's own log. Thread-safe.
#pragma once

#include <cstddef>

namespace gantry::rpc {

// Call it once, after log::Configure and before gRPC is used.
void TakeGrpcLog();

// How many threads gRPC has failed to make for the calls of its servers. It keeps what each has
// taken of a ResourceQuota: who sets a limit of threads adds this number now and again.
size_t CallThreadsRefused();

}  // namespace gantry::rpc
