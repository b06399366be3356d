// Blocks that malloc of glibc has mapped by themselves: no other block is in their pages.
// Stateless; thread-safe.
#pragma once

#include <cstdint>

#include "lib/base/byte_range.h"
#include "lib/base/result.h"

namespace gantry::client {

// Returns the mapping of the block of malloc that begins at the address. kNotExportable unless
// malloc is glibc's, and the headers in front of the block and of the mapping say that it has one.
Result<ByteRange> PagesOfBlock(uint64_t address, uint64_t bytes);

// Returns the mapping of the block that the range is a part of. Its header is looked for where
// written pages begin. kNotExportable also where two headers fit: one of them is data. A block that
// was adopted, and whose descriptor is open, is found by that.
Result<ByteRange> PagesAroundPart(uint64_t address, uint64_t bytes);

// Returns the range, which the caller has mapped. kNotExportable unless it is whole pages.
Result<ByteRange> PagesOfMapping(uint64_t address, uint64_t bytes);

// Returns true where malloc of glibc has the address in a heap of a thread.
bool IsInThreadHeap(uint64_t address);

}  // namespace gantry::client
