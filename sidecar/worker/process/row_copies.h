// Decides when a copy engine takes blocks at a constant step as rows of one strided copy. Otherwise
// they are blocks of a batch. Stateless; thread-safe.
#pragma once

#include <cstdint>

#include "lib/gpu/shared/gpu_driver.h"
#include "sidecar/worker/channel/copy_pool.h"

namespace gantry::worker {

// Submitting a strided copy takes as long as eight blocks of a batch; one of few rows runs as long
// as 64 blocks. It pays from this number of rows on.
inline constexpr uint32_t kRowsMin = 16;
// Longer blocks are separate copies: a batch of so few delays others only briefly.
inline constexpr uint64_t kRowBytesMax = 256 << 10;

inline bool IsForRows(const CopySegment& segment) {
  const auto fits = [&](uint64_t stride) {
    return stride >= segment.length && stride <= gpu::kRowPitchMax;
  };
  return segment.places.empty() && segment.count >= kRowsMin && segment.length <= kRowBytesMax &&
         fits(segment.source_stride) && fits(segment.destination_stride);
}

}  // namespace gantry::worker
