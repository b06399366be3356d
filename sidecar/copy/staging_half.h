// What one side of a transport whose bytes pass through the sidecar, initiator or target, stages
// the bytes of GPUs in: its half of the staging memory, so that neither can wait for the other's. A
// plain value; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "sidecar/copy/slice_pool.h"
#include "sidecar/copy/staging_copier.h"
#include "sidecar/memory/mapped_allocation.h"

namespace gantry::transport {

inline constexpr uint64_t kStagingSliceBytes = 512 << 10;  // as long as a whole request
inline constexpr size_t kStagingSlicesAtOnce = 8;  // that the largest payload of a peer's takes

struct StagingHalf {
  SlicePool slices;
  std::span<std::byte> memory;  // slices.size() of them
  uint64_t stage_offset = 0;    // of the first one, within the staging memory
  StagingCopier& copier;
  std::shared_ptr<const memory::MappedAllocation> allocation = {};  // the staging memory itself
};

}  // namespace gantry::transport
