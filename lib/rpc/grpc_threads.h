// The threads that gRPC makes for itself. Where it cannot make one, it ends the process by an
// assertion, or waits for that thread without end. So each place that gives gRPC new threads proves
// first that there is room for them. Thread-safe.
#pragma once

#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <cstddef>
#include <memory>
#include <string_view>

#include "lib/base/result.h"

namespace gantry::rpc {

// Each synchronous server of this project has one completion queue with one poller at its start.
// Where there is no room for a second poller, gRPC refuses a call.
inline constexpr size_t kSyncServerThreads = 1;

// The health service has callbacks, whose threads the process's first such server makes.
size_t HealthServerThreads();

// Fails with kResourceExhausted unless `count` more threads can be made now. It makes all of them,
// and ends them before it returns. Another process under the same limit may take the room before
// gRPC does: no check in front of gRPC can exclude that.
Status RoomForThreads(std::string_view what, size_t count);

// Builds the server where RoomForThreads(what, count) holds, one at a time: no other server of this
// process takes the room in between.
Result<std::unique_ptr<grpc::Server>> StartServer(std::string_view what, size_t count,
                                                  grpc::ServerBuilder* builder);

// For a process that uses gRPC from its start to its end: the first use of it would otherwise
// start gRPC, and the last one end it, with all of its threads. Fails where there is no room for
// those. Later servers and channels need no threads but their own. Once, when signals are blocked.
Status KeepGrpc();

}  // namespace gantry::rpc
