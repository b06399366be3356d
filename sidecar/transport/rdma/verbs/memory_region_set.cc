#include "sidecar/transport/rdma/verbs/memory_region_set.h"

#include <algorithm>
#include <string>
#include <utility>

#include "lib/base/byte_range.h"
#include "lib/base/log.h"
#include "sidecar/transport/chunk_plan.h"
#include "sidecar/transport/rdma/verbs/touch_pages.h"
#include "sidecar/transport/rdma/verbs/verbs_error.h"

namespace gantry::transport {
namespace {

constexpr uint64_t kPageBytes = 4096;  // the smallest that devices map

uint64_t AddressOf(std::span<std::byte> bytes) { return reinterpret_cast<uintptr_t>(bytes.data()); }

// Chunks are the same on all devices, so that one index names them.
Result<uint64_t> SmallestChunk(std::span<const RegionDevice> devices) {
  ChunkLimits limits{.alignment = kPageBytes};
  for (const RegionDevice& each : devices) {
    if (each.device == nullptr) continue;
    uint64_t bytes = each.chunk_bytes;
    if (bytes == 0) bytes = each.device->limits().region_bytes_max;
    if (limits.device_max == 0 || (bytes != 0 && bytes < limits.device_max)) {
      limits.device_max = bytes;
    }
  }
  return ChunkBytes(limits);
}

// Where work requests find the first byte of a dma-buf: a whole page's, so that all addresses have
// the page bits of what they stand for, and nothing that an offset could be taken for.
constexpr uint64_t kDmaBufAddress = uint64_t{1} << 40;

Status CheckPiece(const memory::NicPiece& piece, const wire::Access& access) {
  const memory::MappedAllocation& allocation = *piece.allocation;
  if (!Fits(piece.offset, piece.length, allocation.size())) {
    return Fail(ErrorCode::kOutOfRange, "[" + std::to_string(piece.offset) + ", +" +
                                            std::to_string(piece.length) +
                                            ") lies outside of its allocation of " +
                                            std::to_string(allocation.size()) + " bytes");
  }
  if (access.remote_write && !allocation.writable()) {
    return Fail(ErrorCode::kFdReadOnly,
                "peers are to write to it, but its allocation was handed over read-only",
                "hand over a descriptor that is open with O_RDWR, or register the buffer without "
                "remote_write");
  }
  return {};
}

// Known before anything is tried.
Status CheckDmaBufs(const memory::MappedAllocation& allocation,
                    std::span<const RegionDevice> devices) {
  for (const RegionDevice& each : devices) {
    if (each.dma_bufs != nullptr)
      RETURN_IF_ERROR(each.dma_bufs->Check(allocation.gpu().device_uuid));
  }
  if (allocation.dma_buf().fd != nullptr) return {};
  const std::string& why = allocation.dma_buf().why_none;
  return Fail(ErrorCode::kPathUnavailable,
              "it is memory of a GPU, and its owner handed over no dma-buf of it" +
                  (why.empty() ? "" : ": " + why));
}

}  // namespace

Result<MemoryRegionSet::Place> MemoryRegionSet::PlaceOf(const memory::NicPiece& piece,
                                                        const wire::Access& access,
                                                        std::span<const RegionDevice> devices) {
  const memory::MappedAllocation& allocation = *piece.allocation;
  RETURN_IF_ERROR(CheckPiece(piece, access));
  Place place;
  if (allocation.kind() == wire::MemoryKind::kHost) {
    ASSIGN_OR_RETURN(const std::span<std::byte> bytes, allocation.in_process().BytesForDevices());
    place.bytes = bytes.subspan(piece.offset, piece.length);
    place.address = AddressOf(place.bytes);
    return place;
  }
  RETURN_IF_ERROR(CheckDmaBufs(allocation, devices));
  place.dma_buf = &allocation.dma_buf();
  place.dma_buf_offset = place.dma_buf->offset + piece.offset;
  place.address = kDmaBufAddress + place.dma_buf_offset;
  return place;
}

Status MemoryRegionSet::CutPieces(std::span<const RegionDevice> devices) {
  ASSIGN_OR_RETURN(const uint64_t chunk_bytes, SmallestChunk(devices));
  uint64_t start = 0;  // of the piece in the buffer
  for (uint32_t piece = 0; piece < pieces_.size(); ++piece) {
    const uint64_t address = places_[piece].address;
    const uint64_t length = pieces_[piece].length;
    ASSIGN_OR_RETURN(const std::vector<ByteRange> parts,
                     PlanChunks(length, chunk_bytes, address % kPageBytes, kPageBytes));
    for (const ByteRange& part : parts) {
      Chunk chunk;
      chunk.offset = start + part.offset;
      chunk.length = part.length;
      chunk.address = address + part.offset;
      chunk.piece = piece;
      chunk.piece_offset = part.offset;
      chunk.is_host = places_[piece].dma_buf == nullptr;
      chunk.may_be_inlined = chunk.is_host && !pieces_[piece].allocation->unsealed();
      chunks_.push_back(std::move(chunk));
    }
    start += length;
  }
  return {};
}

Result<std::unique_ptr<VerbsRegion>> MemoryRegionSet::RegionOn(const RegionDevice& device,
                                                               const RegionAccess& access,
                                                               const Chunk& chunk) {
  const Place& place = places_[chunk.piece];
  if (place.dma_buf == nullptr) {
    auto region =
        device.device->Register(place.bytes.subspan(chunk.piece_offset, chunk.length), access);
    if (region) return region;
    Error error = ExplainRegion(std::move(region).error(), LockedBytesMax(),
                                device.device->limits().regions_max);
    // Before Linux 6.2 all memory is pinned for writing, which this cannot be: it has other ways.
    if (!access.local_write && error.code == ErrorCode::kDeviceError) {
      error = Error(ErrorCode::kPathUnavailable,
                    "its descriptor was handed over read-only, and such memory cannot be "
                    "registered here (" +
                        error.message + ")",
                    "hand over one that is open with O_RDWR, or run Linux 6.2 or later");
    }
    return Fail(std::move(error));
  }
  auto region = device.device->RegisterDmabuf(place.dma_buf->fd->get(),
                                              place.dma_buf_offset + chunk.piece_offset,
                                              chunk.length, chunk.address, access);
  if (region) return region;
  const std::string& gpu = pieces_[chunk.piece].allocation->gpu().device_uuid;
  Error error = std::move(region).error();
  if (device.dma_bufs != nullptr) device.dma_bufs->Learn(gpu, error);
  // Its bytes have other ways, and what the device or the GPU's driver lack is none of the owner's.
  error.code = ErrorCode::kPathUnavailable;
  return Fail(std::move(error).WithContext("the dma-buf of memory of " + gpu));
}

Status MemoryRegionSet::RegisterChunk(const RegionDevice& device, const RegionAccess& access,
                                      size_t index) {
  Chunk& chunk = chunks_[index];
  if (device.device == nullptr) {  // its place stays: keys are found by the device's number
    chunk.local_keys.push_back(0);
    chunk.remote_keys.push_back(0);
    return {};
  }
  auto region = RegionOn(device, access, chunk);
  if (!region) {
    return Fail(std::move(region).error().WithContext(
        "registering bytes [" + std::to_string(chunk.offset) + ", " +
        std::to_string(chunk.offset + chunk.length) + ") of the buffer, chunk " +
        std::to_string(index + 1) + " of " + std::to_string(chunks_.size()) + ", on RDMA device " +
        device.device->name()));
  }
  chunk.local_keys.push_back((*region)->local_key());
  chunk.remote_keys.push_back((*region)->remote_key());
  regions_.push_back(*std::move(region));
  return {};
}

Result<std::shared_ptr<const MemoryRegionSet>> MemoryRegionSet::Register(
    std::span<const RegionDevice> devices, std::vector<memory::NicPiece> pieces,
    const wire::Access& access, const RegionSetOptions& options) {
  // A failure below takes back what was registered: its destructor does.
  const std::shared_ptr<MemoryRegionSet> set(new MemoryRegionSet());
  set->pieces_ = std::move(pieces);
  uint64_t length = 0;
  std::vector<TouchRange> ranges;
  for (const memory::NicPiece& piece : set->pieces_) {
    auto place = PlaceOf(piece, access, devices);
    if (!place) {
      return Fail(std::move(place).error().WithContext(
          "piece " + std::to_string(set->places_.size() + 1) + " of the buffer"));
    }
    // Nothing of a GPU's memory is mapped here.
    if (place->dma_buf == nullptr) {
      ranges.push_back({place->bytes, piece.allocation->writable()});
      length += piece.length;
    }
    set->places_.push_back(*place);
  }
  RETURN_IF_ERROR(set->CutPieces(devices));
  if (length >= options.touch_in_parallel_from) {
    RETURN_IF_ERROR(TouchPages(ranges, options.touch_threads));
  }
  for (size_t i = 0; i < devices.size(); ++i) {
    if (devices[i].device != nullptr) set->devices_.Add(i);
  }
  set->regions_.reserve(set->chunks_.size() * set->devices_.List().size());
  for (size_t index = 0; index < set->chunks_.size(); ++index) {
    RegionAccess rights;
    rights.local_write = set->pieces_[set->chunks_[index].piece].allocation->writable();
    rights.remote_read = access.remote_read;
    rights.remote_write = access.remote_write;
    rights.relaxed_ordering = options.relaxed_ordering && set->chunks_[index].is_host;
    for (const RegionDevice& device : devices) {
      RETURN_IF_ERROR(set->RegisterChunk(device, rights, index));
    }
  }
  return std::shared_ptr<const MemoryRegionSet>(set);
}

std::vector<wire::RdmaChunk> MemoryRegionSet::ChunkDescriptors() const {
  const std::vector<uint32_t> devices = devices_.List();
  std::vector<wire::RdmaChunk> chunks;
  chunks.reserve(chunks_.size());
  for (const Chunk& chunk : chunks_) {
    wire::RdmaChunk told{chunk.length, chunk.address, {}};
    for (const uint32_t device : devices) told.keys.push_back(chunk.remote_keys[device]);
    chunks.push_back(std::move(told));
  }
  return chunks;
}

Status MemoryRegionSet::DeregisterAll() const {
  const size_t devices = std::max<size_t>(1, devices_.List().size());
  Status first;
  for (size_t i = regions_.size(); i-- > 0;) {
    const Status gone = regions_[i]->Deregister();
    if (gone) continue;
    const Chunk& chunk = chunks_[i / devices];
    log::Error("a memory region could not be taken back: its pages stay locked",
               {{"offset", chunk.offset}, {"bytes", chunk.length}, {"error", gone.error()}});
    if (first) first = gone;
  }
  return first;
}

MemoryRegionSet::~MemoryRegionSet() { (void)Deregister(); }

}  // namespace gantry::transport
