#include "sidecar/transport/ipc_transport.h"

#include <algorithm>

#include "sidecar/worker/row_copies.h"

namespace gantry::transport {
namespace {

// Of one copy: a transfer of some GiB is cancelled, and shared between workers, by its copies.
constexpr uint64_t kRowsBytesMax = 4 << 20;

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
  if (copies_.HasGpuWorkers()) return {};
  return Fail(worker::NoGpuWorkers());
}

// Copy engines take rows; what has a side on the host goes block by block through staging memory. A
// kernel's list of the same blocks is made several times as fast when they are not planned by rows,
// and whether the GPUs will be idle is not known yet.
RowLimits IpcTransport::RowsOf(
    const std::vector<std::shared_ptr<const memory::MappedAllocation>>& local,
    const std::vector<RemoteAllocation>& remote) const {
  const bool between_gpus =
      std::all_of(local.begin(), local.end(),
                  [](const auto& one) { return one->kind() == wire::MemoryKind::kGpu; }) &&
      std::all_of(remote.begin(), remote.end(), IsOfGpu);
  if (!between_gpus || copies_.gpu_copies() != GpuCopyPolicy::kEngines) return {};
  const uint64_t row_bytes_max =
      std::min(worker::kRowBytesMax, GpuCopyPlanner::RowBytesMax(copies_.GpuWorkers()));
  if (row_bytes_max == 0) return {};
  return {worker::kRowsMin, row_bytes_max, kRowsBytesMax, gpu::kRowPitchMax};
}

bool IpcTransport::NeedsPeer(const RemoteAllocation& remote) const {
  return remote.mapped == nullptr || IsOfGpu(remote);
}

}  // namespace gantry::transport
