// A buffer's memory regions: one per chunk and device, byte-exact and with the buffer's access. So
// the device itself confines peers to the buffer. Descriptors for peers are built from nothing
// else. All or nothing: a failure deregisters everything. Immutable until deregistered;
// thread-safe.
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

// A device, in the order of the keys, and its limit for a region.
struct RegionDevice {
  VerbsDevice* device = nullptr;      // null: this device gets no registration
  uint64_t chunk_bytes = 0;           // largest chunk; 0: the device's limit
  DmaBufAbility* dma_bufs = nullptr;  // remembers dma-buf failures; null: try each time
};

struct RegionSetOptions {
  // Applies to host memory only. RdmaTarget flushes writes by reading host memory, and that does
  // not flush writes on their way to a GPU.
  bool relaxed_ordering = false;
  // From this buffer size on, several threads touch the pages before a device pins them; a device
  // touches them one by one. Bytes of the whole buffer.
  uint64_t touch_in_parallel_from = 4ULL << 30;
  int touch_threads = 4;
};

class MemoryRegionSet final : public memory::NicMemory {
 public:
  // Bytes [offset, offset + length) of the buffer, registered as one region on each device.
  struct Chunk {
    uint64_t offset = 0;  // in the buffer
    uint64_t length = 0;
    uint64_t address = 0;  // its first byte's in work requests, here and at a peer
    uint32_t piece = 0;
    uint64_t piece_offset = 0;          // its first byte's within the piece
    bool is_host = false;               // host memory, mapped here at `address`
    bool may_be_inlined = false;        // this process may read the bytes
    std::vector<uint32_t> local_keys;   // by device index; valid for devices() only
    std::vector<uint32_t> remote_keys;  // by device index; unused without remote access
  };

  // REQUIRES at least one device, and devices that outlive the result. The smallest limit decides
  // the chunk size. kPathUnavailable: the devices cannot reach the memory, such as a GPU's whose
  // dma-buf is missing or refused. kFdReadOnly: remote_write was asked for read-only memory.
  // kOutOfRange: a piece is outside of its allocation. Otherwise the device's error.
  static Result<std::shared_ptr<const MemoryRegionSet>> Register(
      std::span<const RegionDevice> devices, std::vector<memory::NicPiece> pieces,
      const wire::Access& access, const RegionSetOptions& options);
  ~MemoryRegionSet() override;  // deregisters unless Deregister was called

  size_t chunks() const override { return chunks_.size(); }
  Status Deregister() const override {
    std::call_once(deregistered_, [this] { outcome_ = DeregisterAll(); });
    return outcome_;
  }
  DeviceSet devices() const { return devices_; }              // registered on each of these
  const std::vector<Chunk>& list() const { return chunks_; }  // sorted by offset, without gaps
  const std::vector<memory::NicPiece>& pieces() const { return pieces_; }
  // The chunks as peers learn them, with the keys of devices() in their order.
  std::vector<wire::RdmaChunk> ChunkDescriptors() const;

 private:
  MemoryRegionSet() = default;
  // A piece as a device addresses it.
  struct Place {
    std::span<std::byte> bytes;               // host memory, mapped here
    const memory::DmaBuf* dma_buf = nullptr;  // GPU memory: its allocation's
    uint64_t dma_buf_offset = 0;              // the piece's first byte's in the dma-buf
    uint64_t address = 0;                     // that byte's in work requests
  };

  static Result<Place> PlaceOf(const memory::NicPiece& piece, const wire::Access& access,
                               std::span<const RegionDevice> devices);
  Status CutPieces(std::span<const RegionDevice> devices);
  Result<std::unique_ptr<VerbsRegion>> RegionOn(const RegionDevice& device,
                                                const RegionAccess& access, const Chunk& chunk);
  Status DeregisterAll() const;
  Status RegisterChunk(const RegionDevice& device, const RegionAccess& access, size_t index);

  DeviceSet devices_;
  std::vector<memory::NicPiece> pieces_;  // keeps the mappings alive
  std::vector<Place> places_;             // parallel to pieces_
  std::vector<Chunk> chunks_;
  std::vector<std::unique_ptr<VerbsRegion>> regions_;  // chunk by chunk, device by device
  mutable std::once_flag deregistered_;
  mutable Status outcome_;  // DeregisterAll's; read after deregistered_
};

}  // namespace gantry::transport
