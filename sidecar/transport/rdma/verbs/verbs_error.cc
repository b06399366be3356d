#include "sidecar/transport/rdma/verbs/verbs_error.h"

#include <sys/resource.h>

#include <cerrno>

namespace gantry::transport {
namespace {

// ENOTSUPP of the kernel, which is not meant to leave it: the drivers of some exporters of dma-bufs
// let it out, and no C library has a name for it.
constexpr int kKernelNotSupported = 524;

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
  if (error_number == kKernelNotSupported) error_number = EOPNOTSUPP;
  return SystemError(CodeOf(error_number), device + ": " + std::string(what), error_number);
}

std::optional<uint64_t> LockedBytesMax() {
  struct rlimit limit = {};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return {};
  return limit.rlim_cur;
}

Error ExplainRegion(Error error, std::optional<uint64_t> locked_bytes_max, uint32_t regions_max) {
  if (error.code == ErrorCode::kResourceExhausted) {
    const std::string locked =
        locked_bytes_max ? std::to_string(*locked_bytes_max) + " bytes" : "all that there is";
    error.message += " (this process may lock " + locked + ", and the device takes " +
                     std::to_string(regions_max) + " memory regions)";
    error.hint =
        locked_bytes_max
            ? "raise the memlock limit of the sidecar (LimitMEMLOCK=infinity of the container "
              "runtime), or give it the capability IPC_LOCK"
            : "register fewer buffers, or configure larger chunks: the device has no room for "
              "more memory regions, or the node no memory";
  } else if (error.hint.empty()) {
    error.hint =
        "the kernel log of the node may say more; where the device takes only smaller regions "
        "than it tells, configure the largest memory region";
  }
  return error;
}

}  // namespace gantry::transport
