// gRPC as this process has it: what it says becomes lines of the process's own log, which are JSON,
// and its threads are there from the start. Thread-safe.
#pragma once

#include <cstddef>

namespace gantry::rpc {

// Call it once, after log::Configure and before gRPC is used.
void TakeGrpcLog();

// Makes the threads that gRPC cannot do without, for good: later there may be none to be had. Once,
// when signals are blocked.
void KeepGrpc();

// How many threads gRPC has failed to make for the calls of its servers. It keeps what each has
// taken of a ResourceQuota: who sets a limit of threads adds this number now and again.
size_t CallThreadsRefused();

}  // namespace gantry::rpc
