#include "sidecar/worker/process/segment_copy.h"

#include <cstring>

#include "lib/base/byte_range.h"
#include "sidecar/worker/process/fault_guard.h"
#include "sidecar/worker/process/stream_copy.h"

namespace gantry::worker {
namespace {

constexpr size_t kLineBytes = 64;
constexpr size_t kPrefetchBytes = 4 * kLineBytes;
// Of shorter blocks much lies in lines that are not written whole.
constexpr uint64_t kStreamedMin = 4 << 10;

// True when `count` blocks of `length`, `stride` apart, lie within [0, size). REQUIRES count > 0.
bool BlocksFit(uint64_t offset, uint64_t length, uint64_t stride, uint32_t count, uint64_t size) {
  uint64_t last_block = 0;
  uint64_t extent = 0;
  return Product(stride, count - 1, &last_block) && EndOf(last_block, length, &extent) &&
         Fits(offset, extent, size);
}

template <typename Copy>
void CopyBlocks(const CopySegment& segment, const MappedBytes& source,
                const MappedBytes& destination, const Copy& copy) {
  for (const BlockPlaces& place : segment.places) {
    copy(destination.data + place.destination, source.data + place.source, segment.length);
  }
  if (!segment.places.empty()) return;
  const std::byte* from = source.data + segment.source_offset;
  std::byte* to = destination.data + segment.destination_offset;
  for (uint32_t block = 0; block < segment.count; ++block) {
    copy(to + block * segment.destination_stride, from + block * segment.source_stride,
         segment.length);
  }
}

void CopyUnguarded(const CopySegment& segment, const MappedBytes& source,
                   const MappedBytes& destination) {
  if (!IsStreamed(segment)) {
    // memmove: both sides may lie in one allocation. It is as fast as memcpy in glibc.
    return CopyBlocks(
        segment, source, destination,
        [](std::byte* to, const std::byte* from, size_t bytes) { std::memmove(to, from, bytes); });
  }
  CopyBlocks(segment, source, destination, StreamBytes);
}

}  // namespace

std::optional<ErrorCode> ValidateSegment(const CopySegment& segment, const MappedBytes& source,
                                         const MappedBytes& destination) {
  if (segment.count == 0 || segment.length == 0) return ErrorCode::kInvalidArgument;
  if (!segment.places.empty()) {
    if (segment.length > source.size || segment.length > destination.size) {
      return ErrorCode::kOutOfRange;
    }
    // Without a branch for each, as there are hundreds of thousands.
    const uint64_t last_source = source.size - segment.length;
    const uint64_t last_destination = destination.size - segment.length;
    bool beyond = false;
    for (const BlockPlaces& place : segment.places) {
      beyond |= place.source > last_source;
      beyond |= place.destination > last_destination;
    }
    if (beyond) return ErrorCode::kOutOfRange;
  } else if (!BlocksFit(segment.source_offset, segment.length, segment.source_stride, segment.count,
                        source.size) ||
             !BlocksFit(segment.destination_offset, segment.length, segment.destination_stride,
                        segment.count, destination.size)) {
    return ErrorCode::kOutOfRange;
  }
  if (!destination.writable) return ErrorCode::kFdReadOnly;
  return std::nullopt;
}

void PrefetchBytes(const CopySegment& segment, const MappedBytes& source,
                   const MappedBytes& destination) {
  if (!Fits(segment.source_offset, kPrefetchBytes, source.size) ||
      !Fits(segment.destination_offset, kPrefetchBytes, destination.size)) {
    return;
  }
  for (size_t line = 0; line < kPrefetchBytes; line += kLineBytes) {
    __builtin_prefetch(source.data + segment.source_offset + line, 0);
  }
  if (IsStreamed(segment)) return;
  for (size_t line = 0; line < kPrefetchBytes; line += kLineBytes) {
    __builtin_prefetch(destination.data + segment.destination_offset + line, 1);
  }
}

bool IsStreamed(const CopySegment& segment) {
  return segment.streamed && segment.length >= kStreamedMin;
}

std::optional<ErrorCode> CopyBytes(const CopySegment& segment, const MappedBytes& source,
                                   const MappedBytes& destination) {
  const auto copy = [&] { CopyUnguarded(segment, source, destination); };
  if (source.may_shrink || destination.may_shrink) {
    return RunGuarded({source.unsealed(), destination.unsealed()}, copy)
               ? std::nullopt
               : std::optional(ErrorCode::kFdTooShort);
  }
  copy();
  return std::nullopt;
}

}  // namespace gantry::worker
