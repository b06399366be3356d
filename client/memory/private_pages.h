// Private pages of this process (malloc, numpy, tensors of the CPU) that a memfd takes the place
// of: the same bytes at the same addresses, and a descriptor that a sidecar can map. Stateless;
// thread-safe, for memory that no other thread uses meanwhile.
#pragma once

#include <cstdint>

#include "lib/base/byte_range.h"
#include "lib/base/result.h"
#include "lib/base/unique_fd.h"

namespace gantry::client {

// A descriptor and where its first `bytes` are mapped.
struct SharedPages {
  UniqueFd fd;
  uint64_t address = 0;
  uint64_t bytes = 0;
};

// Puts a memfd in the place of these pages and returns it. Pages that an earlier call has replaced,
// and whose descriptor this process still has, are returned as they are. Takes memory for a slice
// of 64 MiB beside the pages that are there. Pages in a heap of malloc are refused.
// One call at a time replaces pages of this process. The bytes are the same also after an error.
Result<SharedPages> SharePages(const ByteRange& pages);

// Returns true where the address is in a shared mapping of a file that SharePages has not put
// there.
bool IsSharedMapping(uint64_t address);

// Returns true where [address, address + bytes) still shows the file from its beginning on.
bool ShowsFile(int fd, uint64_t address, uint64_t bytes);

}  // namespace gantry::client
