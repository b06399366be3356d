#include "lib/codec/buffer_types.h"

#include <algorithm>
#include <iterator>

#include "lib/base/byte_range.h"

namespace gantry::wire {
namespace {

constexpr size_t kPathNameBytesMax = 7;

constexpr bool IsInOrder() {
  for (size_t i = 0; i < kPaths.size(); ++i) {
    if (kPaths[i] != static_cast<Path>(i)) return false;
  }
  return kPaths.back() == Path::kTcp;
}
static_assert(IsInOrder(), "kPathTable has each path, in the order of the enumeration");

constexpr bool IsComplete(const PathInfo& row) {
  const auto is_like = [&](const PathInfo& other) {
    return other.name == row.name || other.number == row.number;
  };
  return !row.name.empty() && row.name.size() <= kPathNameBytesMax && row.number != 0 &&
         std::count_if(std::begin(kPathTable), std::end(kPathTable), is_like) == 1;
}
static_assert(std::all_of(std::begin(kPathTable), std::end(kPathTable), IsComplete),
              "each path has a name of 1 to 7 bytes and a number, both its own");

}  // namespace

Status CheckLayout(const BlockLayout& layout, uint64_t length) {
  if (layout.block_bytes == 0) {
    return Fail(ErrorCode::kInvalidArgument, "a block has at least one byte", {},
                "/layout/block_bytes");
  }
  if (layout.blocks == 0) {
    return Fail(ErrorCode::kInvalidArgument, "a layout has at least one block", {},
                "/layout/blocks");
  }
  if (layout.blocks > kBlocksMax) {
    return Fail(ErrorCode::kInvalidArgument,
                std::to_string(layout.blocks) + " blocks are more than a block id can name",
                "make the blocks larger: at most 4294967295 of them", "/layout/blocks");
  }
  if (layout.block_stride < layout.block_bytes) {
    return Fail(ErrorCode::kInvalidArgument,
                "the stride of " + std::to_string(layout.block_stride) +
                    " bytes is smaller than a block of " + std::to_string(layout.block_bytes),
                "blocks may not overlap", "/layout/block_stride");
  }
  uint64_t last_block = 0;
  if (!Product(layout.blocks - 1, layout.block_stride, &last_block) ||
      !Fits(last_block, layout.block_bytes, length)) {
    return Fail(ErrorCode::kOutOfRange,
                std::to_string(layout.blocks) + " blocks of " + std::to_string(layout.block_bytes) +
                    " bytes every " + std::to_string(layout.block_stride) +
                    " bytes do not fit a buffer of " + std::to_string(length) + " bytes",
                "the last block needs no stride behind it", "/layout");
  }
  return {};
}

std::string_view NameOf(MemoryKind kind) {
  switch (kind) {
    case MemoryKind::kHost:
      break;
    case MemoryKind::kGpu:
      return "gpu";
  }
  return "host";
}

std::optional<MemoryKind> MemoryKindByName(std::string_view name) {
  for (const MemoryKind kind : kMemoryKinds) {
    if (name == NameOf(kind)) return kind;
  }
  return std::nullopt;
}

std::string PathNames() {
  std::string all;
  for (const Path path : kPaths) {
    if (!all.empty()) all += path == kPaths.back() ? " and " : ", ";
    all += NameOf(path);
  }
  return all;
}

std::optional<Path> PathByName(std::string_view name) {
  for (const PathInfo& row : kPathTable) {
    if (row.name == name) return row.path;
  }
  return std::nullopt;
}

std::optional<Path> PathByNumber(uint32_t number) {
  for (const PathInfo& row : kPathTable) {
    if (row.number == number) return row.path;
  }
  return std::nullopt;
}

Status CheckGpuFacts(const GpuFacts& facts) {
  const std::string& uuid = facts.device_uuid;
  const auto printable = [](char c) { return c > ' ' && c <= '~'; };
  if (uuid.empty() || uuid.size() > kDeviceUuidBytesMax ||
      !std::all_of(uuid.begin(), uuid.end(), printable)) {
    return Fail(ErrorCode::kInvalidArgument, "GPU memory needs the UUID of its GPU",
                "as the vendor's tools print it, at most 47 characters", "/device_uuid");
  }
  if (facts.buffer_id == 0) {
    return Fail(ErrorCode::kInvalidArgument, "GPU memory needs the driver's id of its allocation",
                "the pointer attribute that tells memory which was freed from memory that came "
                "after it at the same address",
                "/buffer_id");
  }
  if (facts.exporter_pid <= 0) {
    return Fail(ErrorCode::kInvalidArgument, "GPU memory needs the PID of the process that owns it",
                "as getpid() answers there", "/pid");
  }
  return {};
}

}  // namespace gantry::wire
