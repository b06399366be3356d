// The body of POST /v1/buffers: allocations by hand-off token and the buffers inside of them.
// Plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lib/codec/buffer_types.h"

namespace gantry::wire {

// The memory of an allocation as devices reach it that are no GPUs.
struct DmaBufSpec {
  std::string fd_token;
  uint64_t offset = 0;  // of the allocation's first byte in it: it begins with a whole page
  uint64_t size = 0;

  bool operator==(const DmaBufSpec&) const = default;
};
inline constexpr size_t kNoDmaBufBytesMax = 1024;

struct AllocationSpec {
  MemoryKind kind = MemoryKind::kHost;
  std::string fd_token;  // what the hand-off socket answered for the descriptor
  uint64_t size = 0;     // bytes of the whole allocation, as its owner knows it
  // Of GPU memory. An allocation with one handle has that; a piece of virtual memory, and one that
  // lies in a dma-buf, has its token.
  std::string device_uuid = {};
  uint64_t buffer_id = 0;
  int64_t pid = 0;
  std::string ipc_handle = {};  // kIpcHandleBytes, or none
  // Where the sidecar wants one: it, or why there is none.
  std::optional<DmaBufSpec> dma_buf = {};
  std::string no_dma_buf_because = {};
  // The token is of a dma-buf, in which the allocation begins here.
  std::optional<uint64_t> fd_offset = {};
  uint64_t base = 0;  // its address in its owner; 0: is not said

  GpuFacts gpu() const {
    const GpuExport by_fd = fd_offset ? GpuExport::kDmaBuf : GpuExport::kPiece;
    return {ipc_handle.empty() ? by_fd : GpuExport::kHandle, device_uuid, buffer_id, pid,
            fd_offset.value_or(0)};
  }
  bool operator==(const AllocationSpec&) const = default;
};

// Bytes that the owner has put into a buffer, for whoever maps it to find there.
struct NoncePlace {
  uint64_t offset = 0;  // in the buffer
  std::string nonce;    // 1 to kNonceBytesMax bytes

  bool operator==(const NoncePlace&) const = default;
};

struct BufferSpec {
  std::string name;
  std::vector<Piece> pieces;  // indices into RegistrationRequest::allocations
  Access access;
  std::optional<BlockLayout> layout;
  std::vector<NoncePlace> verify = {};  // empty: it is believed
};

struct RegistrationRequest {
  std::string workload;
  std::vector<AllocationSpec> allocations;
  std::vector<BufferSpec> buffers;  // registered all or none
};

}  // namespace gantry::wire
