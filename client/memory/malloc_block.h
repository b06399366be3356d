// Blocks that malloc of glibc has mapped by themselves: no other block is in their pages.
// Stateless; thread-safe.
#pragma once

#include <cstdint>

#include "lib/base/byte_range.h"
#include "lib/base/result.h"

namespace gantry::client {

// Returns the whole pages around a block of malloc. kNotExportable unless malloc is glibc's, and
// the header in front of the block says that it has a mapping of its own.
Result<ByteRange> PagesOfBlock(uint64_t address, uint64_t bytes);

// Returns the whole pages of the block that the range is a part of. Its header is looked for in
// front of the address, and then where pages begin. kNotExportable also where two headers fit.
Result<ByteRange> PagesAroundPart(uint64_t address, uint64_t bytes);

// Returns the range, which the caller has mapped. kNotExportable unless it is whole pages.
Result<ByteRange> PagesOfMapping(uint64_t address, uint64_t bytes);

// Returns true where malloc of glibc has the address in a heap of a thread.
bool IsInThreadHeap(uint64_t address);

}  // namespace gantry::client
