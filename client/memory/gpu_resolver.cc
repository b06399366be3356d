#include "client/memory/gpu_resolver.h"

#include <unistd.h>

#include <algorithm>

#include "client/memory/gpu_dma_bufs.h"
#include "lib/base/byte_range.h"
#include "lib/base/fd_passing.h"
#include "lib/base/random_id.h"
#include "lib/base/range_text.h"
#include "lib/gpu/loaded_gpu_pointers.h"
#include "lib/gpu/memory_origin.h"

namespace gantry::client {
namespace {

tl::unexpected<Error> NotExportable(std::string message) {
  return Fail(ErrorCode::kNotExportable, std::move(message),
              "on a GPU, register " + std::string(gpu::kShareableMemory) +
                  "; on the host, allocate an arena (gantry_arena_create, Client.arena) and put "
                  "the data there");
}

// Nothing when the device is not known.
std::string WhyNotShared(const gpu::GpuPointers& driver, const gpu::PointerInfo& info) {
  if (info.device < 0 || static_cast<size_t>(info.device) >= driver.devices().size()) return {};
  const gpu::DeviceInfo& device = driver.devices()[static_cast<size_t>(info.device)];
  const std::string_view why = gpu::WhyNotShared(device);
  if (why.empty()) return {};
  return device.name + " (" + device.uuid + "): " + std::string(why);
}

// Whether the memory around `at`, which is `left` bytes before the end of the range, is of a kind
// that others can open.
Status CheckOrigin(const gpu::GpuPointers& driver, const gpu::PointerInfo& info, uint64_t at,
                   uint64_t left) {
  const std::string where = RangeText(at, left) + " is ";
  const std::string what(gpu::DescriptionOf(info.origin));
  if (info.origin == gpu::MemoryOrigin::kUnknown) {
    return NotExportable(where + "in no arena and is " + what);
  }
  if (info.origin != gpu::MemoryOrigin::kDevice && info.origin != gpu::MemoryOrigin::kVirtual) {
    return NotExportable(where + what);
  }
  if (const std::string why = WhyNotShared(driver, info); !why.empty()) {
    return Fail(ErrorCode::kNotExportable, where + what + " on " + why,
                "run the workload and its sidecar on a whole GPU; where that cannot be, put the "
                "data into an arena on the host (gantry_arena_create, Client.arena)");
  }
  if (info.origin == gpu::MemoryOrigin::kDevice && !info.has_ipc_handle &&
      !info.is_shared_by_dma_buf) {
    return NotExportable(where + what +
                         " that has no handle, as when it came from another process: only the "
                         "process that allocated it can register it");
  }
  return {};
}

// What lies around `at`, checked.
Result<GpuExtent> LocateOne(const gpu::GpuPointers& driver, uint64_t at, uint64_t left) {
  GpuExtent extent;
  ASSIGN_OR_RETURN(extent.info, driver.Resolve(at));
  RETURN_IF_ERROR(CheckOrigin(driver, extent.info, at, left));
  const uint64_t base = NumberOf(extent.info.allocation.base);
  const uint64_t size = extent.info.allocation.size;
  uint64_t end = 0;
  const bool around = at >= base && EndOf(base, size, &end) && at < end;
  const bool known =
      extent.info.device >= 0 && static_cast<size_t>(extent.info.device) < driver.devices().size();
  if (!around || !known || extent.info.buffer_id == 0) {
    return Fail(ErrorCode::kDeviceError, "the GPU driver does not say what lies around 0x" +
                                             HexOf(at) + ": " + RangeText(base, size) + " on GPU " +
                                             std::to_string(extent.info.device));
  }
  extent.offset = at - base;
  extent.bytes = std::min(left, size - extent.offset);
  // What lies behind such an allocation is another one, whose bytes the caller did not mean.
  if (extent.info.origin == gpu::MemoryOrigin::kDevice && extent.bytes < left) {
    return NotExportable(RangeText(at, left) + " goes on past the end of its allocation, " +
                         RangeText(base, size));
  }
  return extent;
}

}  // namespace

Result<std::vector<GpuExtent>> GpuResolver::Locate(uint64_t address, uint64_t bytes) {
  uint64_t end = 0;
  if (bytes == 0 || !EndOf(address, bytes, &end)) {
    return Fail(
        ErrorCode::kInvalidArgument,
        "a range has at least one byte and does not wrap around: " + RangeText(address, bytes));
  }
  const auto driver = gpu::LoadedGpuPointers();
  if (!driver && driver.error().code == ErrorCode::kNotFound) return Fail(driver.error());
  if (!driver) {
    return NotExportable(RangeText(address, bytes) +
                         " lies in no arena, and the GPU driver of this process does not work: " +
                         driver.error().message);
  }
  std::vector<GpuExtent> extents;
  for (uint64_t at = address; at != end; at += extents.back().bytes) {
    auto extent = LocateOne(**driver, at, end - at);
    if (!extent) {
      Error error = std::move(extent).error();
      if (at == address) return Fail(std::move(error));
      return Fail(std::move(error).WithContext(RangeText(address, bytes) +
                                               " goes on past the end of the GPU's memory"));
    }
    extents.push_back(*std::move(extent));
  }
  return extents;
}

Result<std::vector<GpuPiece>> GpuResolver::Resolve(uint64_t address, uint64_t bytes) {
  ASSIGN_OR_RETURN(const std::vector<GpuExtent> extents, Locate(address, bytes));
  MutexLock lock(mutex_);
  RETURN_IF_ERROR(Export(extents));
  std::vector<GpuPiece> pieces;
  pieces.reserve(extents.size());
  for (const GpuExtent& extent : extents) {
    pieces.push_back({exported_.at(KeyOf(extent.info)), extent.offset, extent.bytes});
  }
  return pieces;
}

Status GpuResolver::Export(std::span<const GpuExtent> extents) {
  std::vector<std::shared_ptr<GpuAllocation>> made;
  Status exported = ExportNew(extents, &made);
  // Nobody has seen them yet. Of those of an export that failed, too: they may be used again.
  if (wants_dma_bufs_) HandOverDmaBufs(made, hand_over_);
  return exported;
}

Result<UniqueFd> GpuResolver::ExportOne(const gpu::GpuPointers& driver,
                                        const gpu::PointerInfo& info, GpuAllocation* made) {
  if (info.origin == gpu::MemoryOrigin::kVirtual) return driver.ExportPiece(info.allocation.base);
  if (info.is_shared_by_dma_buf) {
    const auto page_bytes = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
    ASSIGN_OR_RETURN(const PagesAround around, WholePages(info.allocation, page_bytes));
    auto exported = driver.ExportDmaBuf(around.pages);
    if (exported) {
      made->fd_offset = exported->offset + around.offset;
      return std::move(exported->fd);
    }
    // A handle reaches fewer processes, and is better than nothing.
    if (!info.has_ipc_handle) return Fail(std::move(exported).error());
  }
  ASSIGN_OR_RETURN(made->ipc_handle, driver.ExportIpc(info.allocation.base));
  return UniqueFd();
}

Status GpuResolver::ExportNew(std::span<const GpuExtent> extents,
                              std::vector<std::shared_ptr<GpuAllocation>>* all_made) {
  ASSIGN_OR_RETURN(const gpu::GpuPointers* driver, gpu::LoadedGpuPointers());
  Outgoing outgoing;
  for (const auto& [info, offset, bytes] : extents) {
    if (exported_.contains(KeyOf(info))) continue;
    auto made = std::make_shared<GpuAllocation>();
    made->range = info.allocation;
    made->buffer_id = info.buffer_id;
    made->device_uuid = driver->devices()[static_cast<size_t>(info.device)].uuid;
    ASSIGN_OR_RETURN(UniqueFd fd, ExportOne(*driver, info, made.get()));
    // What was exported is what was looked at only if it is still there.
    RETURN_IF_ERROR(CheckCurrent({made, offset, bytes}));
    if (!fd.valid()) {
      exported_.emplace(KeyOf(info), made);
      all_made->push_back(std::move(made));
      continue;
    }
    outgoing.pieces.push_back(std::move(made));
    outgoing.fds.push_back(std::move(fd));
    if (outgoing.fds.size() == kFdsPerMessageMax) RETURN_IF_ERROR(SendOff(&outgoing, all_made));
  }
  return SendOff(&outgoing, all_made);
}

Status GpuResolver::SendOff(Outgoing* outgoing, std::vector<std::shared_ptr<GpuAllocation>>* made) {
  const Outgoing sent = std::exchange(*outgoing, {});
  if (sent.fds.empty()) return {};
  std::vector<int> fds;
  for (const UniqueFd& fd : sent.fds) fds.push_back(fd.get());
  ASSIGN_OR_RETURN(std::vector<std::string> tokens, hand_over_(fds));
  for (size_t i = 0; i < sent.pieces.size(); ++i) {
    GpuAllocation& piece = *sent.pieces[i];
    piece.fd_token = std::move(tokens.at(i));
    const Key key = {NumberOf(piece.range.base), piece.buffer_id};
    exported_.emplace(key, sent.pieces[i]);
    made->push_back(sent.pieces[i]);
  }
  return {};
}

Status GpuResolver::CheckCurrent(const GpuPiece& piece) {
  const GpuAllocation& allocation = *piece.allocation;
  ASSIGN_OR_RETURN(const gpu::GpuPointers* driver, gpu::LoadedGpuPointers());
  ASSIGN_OR_RETURN(const uint64_t now, driver->BufferIdOf(allocation.range.base));
  if (now == allocation.buffer_id) return {};
  return Fail(ErrorCode::kStaleGeneration,
              "its memory " + RangeText(NumberOf(allocation.range.base), allocation.range.size) +
                  " was freed" + (now == 0 ? "" : " and its address allocated again") +
                  " since it was registered",
              "resume the buffer, which takes the memory that is there now, or unregister it; "
              "suspend buffers before their memory is freed");
}

std::vector<std::string> GpuResolver::TakeUnused() {
  std::vector<std::string> tokens;
  MutexLock lock(mutex_);
  for (auto it = exported_.begin(); it != exported_.end();) {
    // New owners come only from this table, under the lock.
    const bool unused = it->second.use_count() == 1;
    for (const std::string* token : {&it->second->fd_token, &it->second->dma_buf.fd_token}) {
      if (unused && !token->empty()) tokens.push_back(*token);
    }
    it = unused ? exported_.erase(it) : std::next(it);
  }
  return tokens;
}

}  // namespace gantry::client
