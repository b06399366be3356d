#include "sidecar/copy/ipc_transport.h"

namespace gantry::transport {
namespace {

bool IsOfGpu(const RemoteAllocation& remote) {
  return remote.mapped->kind() == wire::MemoryKind::kGpu;
}

}  // namespace

Status IpcTransport::Probe() {
  const Status gpus = gpus_();
  if (gpus) return {};
  return Fail(ErrorCode::kPathUnavailable, gpus.error().message, gpus.error().hint);
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
  if (local.unsealed() || remote.mapped->unsealed()) {
    return Fail(
        ErrorCode::kPathUnavailable,
        "the file of the buffer that is host memory can shrink, and a GPU's driver that finds "
        "no page there ends its copy worker",
        "use memory that is sealed against shrinking, such as a Gantry arena");
  }
  if (copies_.HasGpuWorkers()) return {};
  return Fail(worker::NoGpuWorkers());
}

}  // namespace gantry::transport
