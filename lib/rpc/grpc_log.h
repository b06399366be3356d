// What gRPC has to say becomes lines of this process's own log, which are JSON. Thread-safe.
#pragma once

namespace gantry::rpc {

// Call it once, after log::Configure and before gRPC is used.
void TakeGrpcLog();

}  // namespace gantry::rpc
