// Finds the file behind an address of this process: the mapping by /proc/self/maps, a descriptor
// of its file by /proc/self/fd. Stateless; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lib/base/result.h"
#include "lib/base/unique_fd.h"

namespace gantry::nixl {

struct SharedMapping {
  UniqueFd fd;         // of the same file
  uintptr_t base = 0;  // where its byte 0 is mapped
  uint64_t bytes = 0;  // of it, from there on
  uint64_t device = 0;
  uint64_t inode = 0;
};

// kNotExportable says what the memory is, and the way out. `maps` is a file except in tests.
Result<SharedMapping> FindSharedMapping(uintptr_t address, uint64_t bytes,
                                        const char* maps = "/proc/self/maps");

}  // namespace gantry::nixl
