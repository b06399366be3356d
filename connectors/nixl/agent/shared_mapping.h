// Finds the file behind an address of this process, for registrations of NIXL. Stateless;
// thread-safe.
#pragma once

#include <cstdint>

#include "lib/host/mapped_file.h"

namespace gantry::nixl {

using host::SharedMapping;

// As host::FindSharedMapping; the errors name what a user of NIXL can do.
inline Result<SharedMapping> FindSharedMapping(uintptr_t address, uint64_t bytes) {
  return host::FindSharedMapping(
      address, bytes,
      "allocate it by gantry_nixl.host_memory(bytes) or gantry.Client.arena(bytes), or register "
      "memory of a GPU");
}

}  // namespace gantry::nixl
