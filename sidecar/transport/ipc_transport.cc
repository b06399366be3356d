#include "sidecar/transport/ipc_transport.h"

namespace gantry::transport {
namespace {

bool IsOfGpu(const RemoteAllocation& remote) {
  return remote.mapped->kind() == wire::MemoryKind::kGpu;
}

}  // namespace

Status IpcTransport::Probe() {
  if (gpus_) return {};
  return Fail(ErrorCode::kPathUnavailable, gpus_.error().message, gpus_.error().hint);
}

Status IpcTransport::CanReach(const memory::MappedAllocation& local,
                              const RemoteAllocation& remote) const {
  if (remote.mapped == nullptr) {
    return Fail(ErrorCode::kPathUnavailable,
                remote.why_not_mapped.empty()
                    ? "the remote buffer is not mapped here: it is on another node or not shared"
                    : remote.why_not_mapped);
  }
  if (local.kind() != wire::MemoryKind::kGpu && !IsOfGpu(remote)) {
    return Fail(ErrorCode::kPathUnavailable, "neither buffer is GPU memory");
  }
  if (copies_.HasGpuWorkers()) return {};
  return Fail(ErrorCode::kPathUnavailable, "no copy worker has a context on a GPU any more",
              "the sidecar's log says why; free memory of the GPU and restart the sidecar");
}

bool IpcTransport::NeedsPeer(const RemoteAllocation& remote) const {
  return remote.mapped == nullptr || IsOfGpu(remote);
}

}  // namespace gantry::transport
