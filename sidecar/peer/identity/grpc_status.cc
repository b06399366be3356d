#include "sidecar/peer/identity/grpc_status.h"

#include <algorithm>
#include <string>

#include "lib/wire/peer_messages.h"

namespace gantry::peer {
namespace {

ErrorCode CodeOf(grpc::StatusCode code) {
  switch (code) {
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return ErrorCode::kDeadlineExceeded;
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
      return ErrorCode::kResourceExhausted;
    case grpc::StatusCode::UNIMPLEMENTED:
      return ErrorCode::kVersionMismatch;
    case grpc::StatusCode::CANCELLED:
      return ErrorCode::kCancelled;
    default:
      return ErrorCode::kPeerUnavailable;
  }
}

}  // namespace

grpc::Status ToGrpcStatus(const Error& error) {
  wire::proto::Problem problem;
  wire::ToMessage(error, &problem);
  return {static_cast<grpc::StatusCode>(InfoOf(error.code).grpc_status), problem.message(),
          problem.SerializeAsString()};
}

grpc::Status ToGrpcStatus(const Status& status) {
  return status ? grpc::Status::OK : ToGrpcStatus(status.error());
}

Error FromGrpcStatus(const grpc::Status& status) {
  wire::proto::Problem problem;
  const std::string details = status.error_details();
  if (!details.empty() && problem.ParseFromString(details) && !problem.code().empty()) {
    return wire::FromMessage(problem);
  }
  const ErrorCode code = CodeOf(status.error_code());
  return {
      code, "the peer's sidecar: " + status.error_message(),
      code == ErrorCode::kResourceExhausted
          ? "gRPC says so where it has no thread or no memory for a call: look at the limits of "
            "the peer's pod"
          : ""};
}

}  // namespace gantry::peer
