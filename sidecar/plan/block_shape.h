// Pairs the bytes of two buffers' blocks. A view may take slices of them, or one side's blocks may
// be several times as large. Pure; thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "lib/base/result.h"
#include "lib/codec/buffer_types.h"
#include "lib/wire/view_request.h"

namespace gantry::engine {

// Common to all pairs of one group.
struct BlockShape {
  std::vector<wire::BlockSlice> slices = {{}};  // at least one; the default is the whole block
  uint32_t local_parts = 1;                     // remote blocks per local block
  uint32_t remote_parts = 1;  // local blocks per remote block; one of the two is 1
};

// One slice of one pair. A unit moves for each pair of ids. Within its block, part i begins at
// offset + i * bytes.
struct BlockUnit {
  uint64_t bytes = 0;
  uint64_t local_offset = 0;
  uint64_t remote_offset = 0;
};

// Fails unless the slice lies within the blocks of both sides and both sides move equal byte
// counts. The parts must divide evenly.
Result<BlockUnit> UnitOf(const BlockShape& shape, const wire::BlockSlice& slice,
                         const wire::BlockLayout& local, const wire::BlockLayout& remote);

// Returns false when two slices of a local (or remote) block overlap, which a destination must not.
bool SlicesAreApart(const BlockShape& shape, bool of_local);

}  // namespace gantry::engine
