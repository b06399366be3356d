// Which bytes of two buffers' blocks pair up when a view takes slices of them, or when the blocks
// of one side are several times as large. Pure; thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "lib/base/result.h"
#include "lib/codec/buffer_types.h"
#include "lib/wire/view_request.h"

namespace gantry::engine {

// The same for all pairs of one group.
struct BlockShape {
  std::vector<wire::BlockSlice> slices = {{}};  // at least one; by default the whole block
  uint32_t local_parts = 1;                     // so many remote blocks make one local block,
  uint32_t remote_parts = 1;  // or one remote block so many local ones; one of the two is 1
};

// One slice of one pair. A unit is what moves for each pair of ids: part i of a block begins at
// offset + i * bytes within it.
struct BlockUnit {
  uint64_t bytes = 0;
  uint64_t local_offset = 0;
  uint64_t remote_offset = 0;
};

// Checks that the slice lies within the blocks of both sides, that both sides move the same number
// of bytes and that the parts come out even.
Result<BlockUnit> UnitOf(const BlockShape& shape, const wire::BlockSlice& slice,
                         const wire::BlockLayout& local, const wire::BlockLayout& remote);

// False when two slices of a local (or remote) block share bytes: the destination must not.
bool SlicesAreApart(const BlockShape& shape, bool of_local);

}  // namespace gantry::engine
