#include "client/memory/gpu_dma_bufs.h"

#include <unistd.h>

#include <algorithm>
#include <string>
#include <utility>

#include "lib/base/byte_range.h"
#include "lib/base/fd_passing.h"
#include "lib/gpu/loaded_gpu_pointers.h"

namespace gantry::client {
namespace {

// On their way to the sidecar.
struct Outgoing {
  std::vector<GpuAllocation*> allocations;
  std::vector<UniqueFd> fds;
};

std::string ReasonOf(const Error& error) {
  std::string reason = error.message + (error.hint.empty() ? "" : ": " + error.hint);
  reason.resize(std::min(reason.size(), wire::kNoDmaBufBytesMax));
  return reason;
}

Status CheckDevice(const gpu::GpuPointers& driver, const std::string& uuid) {
  for (const gpu::DeviceInfo& device : driver.devices()) {
    if (device.uuid == uuid && device.orders_rdma_writes) return {};
  }
  return Fail(ErrorCode::kPathUnavailable,
              "what RDMA devices write to its GPU needs a flush there, which this version has not");
}

Result<UniqueFd> ExportOne(const gpu::GpuPointers& driver,
                           const std::shared_ptr<GpuAllocation>& allocation) {
  RETURN_IF_ERROR(CheckDevice(driver, allocation->device_uuid));
  const auto page_bytes = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  ASSIGN_OR_RETURN(const PagesAround around, WholePages(allocation->range, page_bytes));
  ASSIGN_OR_RETURN(gpu::DmaBufExport exported, driver.ExportDmaBuf(around.pages));
  // What was exported is what was looked at only if it is still there.
  RETURN_IF_ERROR(GpuResolver::CheckCurrent({allocation, 0, 1}));
  allocation->dma_buf.offset = exported.offset + around.offset;
  allocation->dma_buf.size = exported.size;
  return std::move(exported.fd);
}

// Empties it.
void SendOff(Outgoing* outgoing, const GpuResolver::HandOver& hand_over) {
  const Outgoing sent = std::exchange(*outgoing, {});
  if (sent.fds.empty()) return;
  std::vector<int> fds;
  for (const UniqueFd& fd : sent.fds) fds.push_back(fd.get());
  auto tokens = hand_over(fds);
  for (size_t i = 0; i < sent.allocations.size(); ++i) {
    GpuAllocation& allocation = *sent.allocations[i];
    if (tokens) {
      allocation.dma_buf.fd_token = std::move((*tokens)[i]);
    } else {
      allocation.no_dma_buf_because = ReasonOf(tokens.error());
    }
  }
}

}  // namespace

Result<PagesAround> WholePages(const gpu::AddressRange& allocation, uint64_t page_bytes) {
  const uint64_t base = NumberOf(allocation.base);
  uint64_t end = 0;
  if (!EndOf(base, allocation.size, &end) || !EndOf(end, page_bytes - 1, &end)) {
    return Fail(ErrorCode::kDeviceError, "the GPU driver says that an allocation wraps around");
  }
  const uint64_t first = base - base % page_bytes;
  const uint64_t size = end - end % page_bytes - first;
  return PagesAround{{gpu::DeviceAddress{first}, size}, base - first};
}

void HandOverDmaBufs(std::span<const std::shared_ptr<GpuAllocation>> allocations,
                     const GpuResolver::HandOver& hand_over) {
  const auto driver = gpu::LoadedGpuPointers();
  Outgoing outgoing;
  for (const auto& allocation : allocations) {
    auto fd = driver ? ExportOne(**driver, allocation) : Fail(driver.error());
    if (!fd) {
      allocation->no_dma_buf_because = ReasonOf(fd.error());
      continue;
    }
    outgoing.allocations.push_back(allocation.get());
    outgoing.fds.push_back(*std::move(fd));
    if (outgoing.fds.size() == kFdsPerMessageMax) SendOff(&outgoing, hand_over);
  }
  SendOff(&outgoing, hand_over);
}

}  // namespace gantry::client
