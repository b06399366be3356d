#include "sidecar/transport/ipc_transport.h"

namespace gantry::transport {

Status IpcTransport::Probe() {
  if (gpus_) return {};
  return Fail(ErrorCode::kPathUnavailable, gpus_.error().message, gpus_.error().hint);
}

Status IpcTransport::CanReach(const memory::MappedAllocation& local,
                              const RemoteAllocation& remote) const {
  if (local.kind() != wire::MemoryKind::kGpu) {
    return Fail(ErrorCode::kPathUnavailable, "the local buffer is not GPU memory");
  }
  if (remote.mapped == nullptr) {
    return Fail(ErrorCode::kPathUnavailable,
                remote.why_not_mapped.empty()
                    ? "the remote buffer is not mapped here: it is on another node or not shared"
                    : remote.why_not_mapped);
  }
  if (remote.mapped->kind() != wire::MemoryKind::kGpu) {
    return Fail(ErrorCode::kPathUnavailable, "the remote buffer is not GPU memory");
  }
  return {};
}

}  // namespace gantry::transport
