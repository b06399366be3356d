#include "sidecar/transport/chunk_plan.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <string>

namespace gantry::transport {
namespace {

Status CheckAlignment(uint64_t alignment) {
  if (std::has_single_bit(alignment)) return {};
  return Fail(ErrorCode::kInternal, "chunks cannot be aligned to " + std::to_string(alignment) +
                                        " bytes, which is no power of two");
}

}  // namespace

Result<uint64_t> ChunkBytes(const ChunkLimits& limits) {
  RETURN_IF_ERROR(CheckAlignment(limits.alignment));
  uint64_t limit = std::numeric_limits<uint64_t>::max();
  if (limits.device_max != 0) limit = limits.device_max;
  if (limits.override_bytes != 0) limit = limits.override_bytes;
  const uint64_t chunk_bytes = limit & ~(limits.alignment - 1);
  if (chunk_bytes != 0) return chunk_bytes;
  const std::string alignment = std::to_string(limits.alignment);
  if (limits.override_bytes != 0) {
    return Fail(ErrorCode::kInvalidArgument,
                "the configured largest memory region of " + std::to_string(limit) +
                    " bytes is smaller than a page of " + alignment + " bytes",
                "configure a multiple of the page, or none to use the device's own limit");
  }
  return Fail(ErrorCode::kDeviceError,
              "the device tells that its largest memory region has " + std::to_string(limit) +
                  " bytes, which is less than a page of " + alignment + " bytes",
              "configure the largest memory region where the device tells a wrong one");
}

Result<std::vector<Chunk>> PlanChunks(uint64_t length, uint64_t chunk_bytes, uint64_t misalignment,
                                      uint64_t alignment) {
  RETURN_IF_ERROR(CheckAlignment(alignment));
  if (chunk_bytes == 0 || chunk_bytes % alignment != 0 || misalignment >= alignment) {
    return Fail(ErrorCode::kInternal, "chunks of " + std::to_string(chunk_bytes) + " bytes from " +
                                          std::to_string(misalignment) +
                                          " bytes behind an aligned address on have no seams on "
                                          "multiples of " +
                                          std::to_string(alignment) + " bytes");
  }
  const uint64_t first = std::min(length, chunk_bytes - misalignment);
  const uint64_t rest = length - first;
  const uint64_t full = rest / chunk_bytes;
  const uint64_t last = rest % chunk_bytes;
  if (full > kChunksMax || full + (first != 0) + (last != 0) > kChunksMax) {
    return Fail(ErrorCode::kInvalidArgument,
                std::to_string(length) + " bytes in chunks of " + std::to_string(chunk_bytes) +
                    " are more than the " + std::to_string(kChunksMax) +
                    " memory regions that a buffer's piece may have",
                "configure a larger largest memory region, or none to use the device's own limit");
  }
  std::vector<Chunk> chunks;
  chunks.reserve(full + 2);
  if (first != 0) chunks.push_back({0, first});
  for (uint64_t offset = first; offset != length; offset += chunks.back().length) {
    chunks.push_back({offset, std::min(chunk_bytes, length - offset)});
  }
  return chunks;
}

}  // namespace gantry::transport
