// The words that describe a buffer on every border: access, block layout, kind of memory.
// Plain values.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/result.h"

namespace gantry::wire {

// What peers may do with a buffer. Its own workload may always use it as its descriptor allows.
struct Access {
  bool remote_read = false;
  bool remote_write = false;

  bool operator==(const Access&) const = default;
};

// Block i of a buffer is the bytes [i * block_stride, i * block_stride + block_bytes).
struct BlockLayout {
  uint64_t block_bytes = 0;
  uint64_t block_stride = 0;  // >= block_bytes
  uint64_t blocks = 0;

  bool operator==(const BlockLayout&) const = default;
};

// So that a block id takes 32 bits where many are kept.
inline constexpr uint64_t kBlocksMax = 0xffffffff;

// Checks that there are not more, and that every block lies within `length` bytes, without
// wrapping.
Status CheckLayout(const BlockLayout& layout, uint64_t length);

enum class MemoryKind : uint8_t { kHost, kGpu };
inline constexpr MemoryKind kMemoryKinds[] = {MemoryKind::kHost, MemoryKind::kGpu};
std::string_view NameOf(MemoryKind kind);  // "host", "gpu"
std::optional<MemoryKind> MemoryKindByName(std::string_view name);

// The transports, in the order in which transfers try them: fastest first. kTcp stays last.
enum class Path : uint8_t { kIpc, kShm, kRdma, kBounce, kTcp };

// The memory that a path carries.
enum class PathMemory : uint8_t {
  kAny,
  kHostOnly,  // both buffers are host memory
  kSomeGpu,   // one of the two buffers is GPU memory, or both are
};

// Properties of a path that do not depend on its transport.
struct PathInfo {
  Path path = Path::kTcp;
  std::string_view name;       // 1 to 7 bytes: gantry_transfer_status.path has 8
  uint32_t number = 0;         // in the peer API; never changes, and no other path gets it
  bool shares_memory = false;  // maps the peer's memory, so both sidecars are on one node
  PathMemory memory = PathMemory::kAny;
};
// A row for each path, in the order of Path. `transport_list.cc` has the transports.
inline constexpr PathInfo kPathTable[] = {
    {Path::kIpc, "ipc", 1, true, PathMemory::kSomeGpu},
    {Path::kShm, "shm", 2, true, PathMemory::kHostOnly},
    {Path::kRdma, "rdma", 3, false, PathMemory::kAny},
    {Path::kBounce, "bounce", 5, false, PathMemory::kAny},
    {Path::kTcp, "tcp", 4, false, PathMemory::kAny},
};
inline constexpr int kPathCount = std::size(kPathTable);
inline constexpr auto kPaths = [] {
  std::array<Path, kPathCount> paths{};
  for (size_t i = 0; i < paths.size(); ++i) paths[i] = kPathTable[i].path;
  return paths;
}();
constexpr const PathInfo& InfoOf(Path path) { return kPathTable[static_cast<size_t>(path)]; }
constexpr std::string_view NameOf(Path path) { return InfoOf(path).name; }
std::string PathNames();  // all of them, with commas between, for messages
std::optional<Path> PathByName(std::string_view name);
// None: only the peer knows the path.
std::optional<Path> PathByNumber(uint32_t number);

// Why one path can or cannot be taken; `reason` is empty when it can.
struct PathReport {
  Path path = Path::kShm;
  bool available = false;
  std::string reason;
};

// The reason of a path that shares memory, where both sidecars are on one node.
inline constexpr std::string_view kReachedOverTcp =
    "the peer was reached over TCP, not by the node directory";

// One part of a buffer: bytes [offset, offset + length) of the allocation with that index in the
// list beside it. Only memory::PieceMap adds these numbers.
struct Piece {
  uint32_t allocation = 0;
  uint64_t offset = 0;
  uint64_t length = 0;

  bool operator==(const Piece&) const = default;
};

// What stands for GPU memory in other processes of its node is a descriptor, too: of the piece of
// virtual memory itself, of a dma-buf in which the allocation lies, or of a small file with the
// handle of the whole allocation.
enum class GpuExport : uint8_t { kHandle, kPiece, kDmaBuf };
inline constexpr uint32_t kGpuExportCount = 3;

struct GpuFacts {
  GpuExport form = GpuExport::kHandle;
  std::string device_uuid;   // as the vendor's tools print it
  uint64_t buffer_id = 0;    // the driver's, never used again within the exporter's process
  int64_t exporter_pid = 0;  // the number that the exporter has for itself
  uint64_t fd_offset = 0;    // of the allocation's first byte in its dma-buf

  bool operator==(const GpuFacts&) const = default;
};
inline constexpr size_t kDeviceUuidBytesMax = 47;
inline constexpr size_t kIpcHandleBytes = 64;
inline constexpr size_t kNonceBytesMax = 16;

// The limits of each of them; an error names its field.
Status CheckGpuFacts(const GpuFacts& facts);

}  // namespace gantry::wire
