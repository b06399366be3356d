// The half of the staging memory of one role: initiator or target. Two halves keep the roles from
// waiting for each other's memory. A plain value; thread-safe.
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
inline constexpr size_t kStagingSlicesAtOnce = 8;          // slices of a peer's largest payload

struct StagingHalf {
  SlicePool slices;
  std::span<std::byte> memory;  // slices.size() slices
  uint64_t stage_offset = 0;    // the first slice's, within the staging memory
  StagingCopier& copier;
  std::shared_ptr<const memory::MappedAllocation> allocation = {};  // the staging memory itself
};

}  // namespace gantry::transport
