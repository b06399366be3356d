// Errors over gRPC: the status code from the table in lib/base/error.cc, and the whole error in the
// status's details. Stateless; thread-safe.
#pragma once

#include <grpcpp/support/status.h>

#include "lib/base/result.h"

namespace gantry::peer {

grpc::Status ToGrpcStatus(const Error& error);
grpc::Status ToGrpcStatus(const Status& status);
// REQUIRES !status.ok(). A failure of gRPC itself becomes kPeerUnavailable, kDeadlineExceeded,
// kResourceExhausted or kVersionMismatch.
Error FromGrpcStatus(const grpc::Status& status);

}  // namespace gantry::peer
