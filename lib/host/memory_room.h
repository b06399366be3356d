// How much memory this process can still take before the kernel's out-of-memory killer ends
// something: of the machine, and of every control group above the process. Stateless; thread-safe.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "lib/base/result.h"

namespace gantry::host {

struct MemoryRoom {
  uint64_t bytes = 0;
  std::string bound;  // what allows no more, for a person
};

// Page cache that the kernel can drop counts as free, swap does not: memory that is shared with
// copy workers and NICs is to be there. memory.high counts as a limit: beyond it the whole group
// is slowed down for good. `root` holds proc and sys.
MemoryRoom MemoryRoomOf(const std::filesystem::path& root = "/");

// kResourceExhausted when `bytes` and the kernel's records of their pages have no room. Others may
// take the room at the same time: large memory is checked again while it is taken.
Status CheckMemoryRoom(uint64_t bytes, const std::filesystem::path& root = "/");

}  // namespace gantry::host
