#include "sidecar/transport/rdma/verbs_error.h"

#include <cerrno>

namespace gantry::transport {
namespace {

ErrorCode CodeOf(int error_number) {
  switch (error_number) {
    case ENOMEM:
    case EAGAIN:
    case ENOSPC:
    case EMFILE:
      return ErrorCode::kResourceExhausted;
    case EOPNOTSUPP:
    case ENOSYS:
      return ErrorCode::kPathUnavailable;
    default:
      return ErrorCode::kDeviceError;
  }
}

}  // namespace

Error VerbsError(const std::string& device, std::string_view what, int error_number) {
  return SystemError(CodeOf(error_number), device + ": " + std::string(what), error_number);
}

}  // namespace gantry::transport
