// A buffer's memory regions: each chunk of each piece on each device, byte-exact and with the
// buffer's access, so that the device itself keeps peers to it. The only source of what is told to
// peers. All or nothing: a failure takes back what was registered. Immutable until it is
// deregistered; thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "lib/base/result.h"
#include "lib/codec/buffer_types.h"
#include "lib/wire/rdma_types.h"
#include "sidecar/memory/nic_memory.h"
#include "sidecar/transport/rdma/verbs/device_set.h"
#include "sidecar/transport/rdma/verbs/dma_buf_ability.h"
#include "sidecar/transport/rdma/verbs/verbs.h"

namespace gantry::transport {

// A device in the order of the keys, and how large a region on it may be.
struct RegionDevice {
  VerbsDevice* device = nullptr;      // null: nothing is registered on this one
  uint64_t chunk_bytes = 0;           // at most; 0: as large as the device takes
  DmaBufAbility* dma_bufs = nullptr;  // null: tried each time
};

struct RegionSetOptions {
  // Of memory of the host alone: whoever writes to it knows it arrived by a read of the host's
  // memory (RdmaTarget), which pushes nothing that is still on its way to a GPU.
  bool relaxed_ordering = false;
  // Bytes of the buffer, not of a chunk, from which on its pages are touched by several threads
  // before a device pins them, which it does one by one.
  uint64_t touch_in_parallel_from = 4ULL << 30;
  int touch_threads = 4;
};

class MemoryRegionSet final : public memory::NicMemory {
 public:
  // One region on every device: bytes [offset, offset + length) of the buffer.
  struct Chunk {
    uint64_t offset = 0;  // in the buffer
    uint64_t length = 0;
    uint64_t address = 0;  // as work requests name its first byte, here and at a peer
    uint32_t piece = 0;
    uint64_t piece_offset = 0;          // of its first byte in the piece
    bool is_host = false;               // memory that is mapped here, at the address
    std::vector<uint32_t> local_keys;   // parallel to the devices; of devices() alone
    std::vector<uint32_t> remote_keys;  // likewise; meaningless without remote access
  };

  // REQUIRES one device at least, and devices that outlive the result. Chunks are cut for the
  // device that takes the smallest. Fails with kPathUnavailable for memory that the devices do not
  // reach, as that of a GPU whose dma-buf is missing or refused, for whatever reason; kFdReadOnly
  // where peers are to write to what was handed over read-only, kOutOfRange for a piece outside of
  // its allocation, else as the device failed.
  static Result<std::shared_ptr<const MemoryRegionSet>> Register(
      std::span<const RegionDevice> devices, std::vector<memory::NicPiece> pieces,
      const wire::Access& access, const RegionSetOptions& options);
  ~MemoryRegionSet() override;  // deregisters, if nobody did

  size_t chunks() const override { return chunks_.size(); }
  Status Deregister() const override {
    std::call_once(deregistered_, [this] { outcome_ = DeregisterAll(); });
    return outcome_;
  }
  DeviceSet devices() const { return devices_; }              // that have each of them
  const std::vector<Chunk>& list() const { return chunks_; }  // by offset, without gaps
  const std::vector<memory::NicPiece>& pieces() const { return pieces_; }
  // As peers may know them, with the keys of devices() in their order.
  std::vector<wire::RdmaChunk> ToldChunks() const;

 private:
  MemoryRegionSet() = default;
  // Where a piece is for a device.
  struct Place {
    std::span<std::byte> bytes;               // of host memory, mapped here
    const memory::DmaBuf* dma_buf = nullptr;  // of a GPU's: its allocation's
    uint64_t dma_buf_offset = 0;              // of the piece's first byte in it
    uint64_t address = 0;                     // of the same as work requests name it
  };

  static Result<Place> PlaceOf(const memory::NicPiece& piece, const wire::Access& access,
                               std::span<const RegionDevice> devices);
  Status CutPieces(std::span<const RegionDevice> devices);
  Result<std::unique_ptr<VerbsRegion>> RegionOn(const RegionDevice& device,
                                                const RegionAccess& access, const Chunk& chunk);
  Status DeregisterAll() const;
  Status RegisterChunk(const RegionDevice& device, const RegionAccess& access, size_t index);

  DeviceSet devices_;
  std::vector<memory::NicPiece> pieces_;  // keep the mappings
  std::vector<Place> places_;             // parallel to them
  std::vector<Chunk> chunks_;
  std::vector<std::unique_ptr<VerbsRegion>> regions_;  // chunk by chunk, device by device
  mutable std::once_flag deregistered_;
  mutable Status outcome_;  // of that; read after it
};

}  // namespace gantry::transport
