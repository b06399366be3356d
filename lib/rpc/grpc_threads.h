// The threads that gRPC creates. If it cannot create one, it aborts the process or waits for ever.
// So the code that lets gRPC create threads first proves that there is room. Thread-safe.
#pragma once

#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <cstddef>
#include <memory>
#include <string_view>

#include "lib/base/result.h"

namespace gantry::rpc {

// Each synchronous server of this project has one completion queue with one poller at its start.
// Without room for a second poller, gRPC refuses a call.
inline constexpr size_t kSyncServerThreads = 1;

// Threads of the callback API, which the process's first health server starts.
size_t HealthServerThreads();

// kResourceExhausted unless `count` more threads can be created now. It creates all of them and
// ends them before it returns. Another process under the same limit may still take the room before
// gRPC does.
Status RoomForThreads(std::string_view what, size_t count);

// Builds the server if RoomForThreads(what, count) holds. Calls are serialised, so that no other
// server of this process takes the room in between.
Result<std::unique_ptr<grpc::Server>> StartServer(std::string_view what, size_t count,
                                                  grpc::ServerBuilder* builder);

// Keeps gRPC initialised until the process ends. Without this, its first use starts gRPC's threads
// and its last use ends them. Fails without room for those threads. Call once, when signals are
// blocked.
Status KeepGrpc();

}  // namespace gantry::rpc
