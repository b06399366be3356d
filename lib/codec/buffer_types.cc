#include "lib/codec/buffer_types.h"

#include <algorithm>
#include <array>

#include "lib/base/byte_range.h"

namespace gantry::wire {
namespace {

constexpr std::array<std::string_view, kPathCount> kPathNames = {"ipc", "shm", "rdma", "bounce",
                                                                 "tcp"};
static_assert(!kPathNames.back().empty(), "each path has a name");
static_assert(std::all_of(std::begin(kPaths), std::end(kPaths),
                          [](Path path) { return kPaths[static_cast<size_t>(path)] == path; }) &&
                  kPaths[kPathCount - 1] == Path::kTcp,
              "kPaths has each path, in the order of the enumeration");

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

std::string_view NameOf(Path path) { return kPathNames[static_cast<size_t>(path)]; }

std::string PathNames() {
  std::string all;
  for (const Path path : kPaths) {
    if (!all.empty()) all += path == kPaths[kPathCount - 1] ? " and " : ", ";
    all += NameOf(path);
  }
  return all;
}

std::optional<Path> PathByName(std::string_view name) {
  for (size_t i = 0; i < kPathNames.size(); ++i) {
    if (kPathNames[i] == name) return static_cast<Path>(i);
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
