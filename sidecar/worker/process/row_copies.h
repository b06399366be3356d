// When a copy engine takes blocks at one step from each other as rows of one copy, and when as so
// many blocks of a batch. Stateless; thread-safe.
#pragma once

#include <cstdint>

#include "lib/gpu/shared/gpu_driver.h"
#include "sidecar/worker/channel/copy_pool.h"

namespace gantry::worker {

// A copy of rows takes as long to hand over as some eight blocks of a batch, and one of few rows
// as long as one of 64: it is worth it from here on.
inline constexpr uint32_t kRowsMin = 16;
// Longer ones are copies by themselves: no batch of so few blocks holds others up for long.
inline constexpr uint64_t kRowBytesMax = 256 << 10;

inline bool IsForRows(const CopySegment& segment) {
  const auto fits = [&](uint64_t stride) {
    return stride >= segment.length && stride <= gpu::kRowPitchMax;
  };
  return segment.places.empty() && segment.count >= kRowsMin && segment.length <= kRowBytesMax &&
         fits(segment.source_stride) && fits(segment.destination_stride);
}

}  // namespace gantry::worker
