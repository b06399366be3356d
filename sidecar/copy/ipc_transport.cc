#include "sidecar/copy/ipc_transport.h"

#include <algorithm>

#include "sidecar/worker/process/row_copies.h"

namespace gantry::transport {
namespace {

// Of one copy: a transfer of some GiB is cancelled, and shared between workers, by its copies.
constexpr uint64_t kRowsBytesMax = 4 << 20;
// Of most rows of a transfer: batches of longer ones are as fast.
constexpr uint64_t kMostRowBytesMax = 64 << 10;

bool IsOfGpu(const RemoteAllocation& remote) {
  return remote.mapped->kind() == wire::MemoryKind::kGpu;
}

// Its place to those that are there; false: it is on none.
bool AddGpuOf(const memory::MappedAllocation& allocation, const ShmTransport& copies,
              std::vector<int>* gpus) {
  if (allocation.kind() != wire::MemoryKind::kGpu) return false;
  const int gpu = copies.GpuPlace(allocation.gpu().device_uuid);
  if (std::find(gpus->begin(), gpus->end(), gpu) == gpus->end()) gpus->push_back(gpu);
  return true;
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
// kernel's list of the same blocks is made several times as fast when they are not planned by rows:
// they are where the GPUs were busy last.
RowLimits IpcTransport::RowsOf(
    const std::vector<std::shared_ptr<const memory::MappedAllocation>>& local,
    const std::vector<RemoteAllocation>& remote) const {
  std::vector<int> gpus;
  for (const auto& one : local) {
    if (!AddGpuOf(*one, copies_, &gpus)) return {};
  }
  for (const RemoteAllocation& one : remote) {
    if (one.mapped == nullptr || !AddGpuOf(*one.mapped, copies_, &gpus)) return {};
  }
  if (!copies_.EnginesWillCopy(gpus)) return {};
  const size_t near = copies_.GpuWorkersOn(gpus);
  const uint64_t row_bytes_max = std::min(
      kMostRowBytesMax, GpuCopyPlanner::RowBytesMax(near > 0 ? near : copies_.GpuWorkers()));
  if (row_bytes_max == 0) return {};
  return {worker::kRowsMin, row_bytes_max, kRowsBytesMax, gpu::kRowPitchMax, worker::kRowBytesMax};
}

bool IpcTransport::NeedsPeer(const RemoteAllocation& remote) const {
  return remote.mapped == nullptr || IsOfGpu(remote);
}

}  // namespace gantry::transport
