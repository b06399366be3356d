// Finds the file behind an address of this process: the mapping by /proc/self/maps, its file by a
// descriptor of this process or by its path. Stateless; thread-safe.
#pragma once

#include <cstdint>

#include "lib/base/result.h"
#include "lib/base/unique_fd.h"

namespace gantry::host {

struct SharedMapping {
  UniqueFd fd;         // of the same file; open for writing where the mapping is writable
  uintptr_t base = 0;  // where its byte 0 is mapped
  uint64_t bytes = 0;  // of it, from there on
  uint64_t device = 0;
  uint64_t inode = 0;
};

// kNotExportable says what the memory is, with `way_out` as its hint. kFdTooShort: the mapping goes
// on past the end of its file, and the range does, too. `maps` is a file except in tests.
Result<SharedMapping> FindSharedMapping(uintptr_t address, uint64_t bytes, const char* way_out,
                                        const char* maps = "/proc/self/maps");

}  // namespace gantry::host
