#include "sidecar/copy/shm_transport.h"

namespace gantry::transport {

Status ShmTransport::CanReach(const memory::MappedAllocation& local,
                              const RemoteAllocation& remote) const {
  if (local.kind() != wire::MemoryKind::kHost) {
    return Fail(ErrorCode::kPathUnavailable, "the local buffer is not host memory");
  }
  if (remote.mapped == nullptr) {
    return Fail(ErrorCode::kPathUnavailable,
                remote.why_not_mapped.empty()
                    ? "the remote buffer is not mapped here: it is on another node or not shared"
                    : remote.why_not_mapped);
  }
  if (remote.mapped->kind() != wire::MemoryKind::kHost) {
    return Fail(ErrorCode::kPathUnavailable, "the remote buffer is not host memory");
  }
  return {};
}

}  // namespace gantry::transport
