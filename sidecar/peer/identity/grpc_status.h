// Errors over gRPC: the status code of the one table in lib/base/error.cc, and the whole error as
// the status's details. Stateless; thread-safe.
#pragma once

#include <grpcpp/support/status.h>

#include "lib/base/result.h"

namespace gantry::peer {

grpc::Status ToGrpcStatus(const Error& error);
grpc::Status ToGrpcStatus(const Status& status);
// REQUIRES !status.ok(). A failure that gRPC itself reports becomes kPeerUnavailable, or
// kDeadlineExceeded, kResourceExhausted, kVersionMismatch.
Error FromGrpcStatus(const grpc::Status& status);

}  // namespace gantry::peer
