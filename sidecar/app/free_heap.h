// Free memory that malloc retains. Many threads allocate long-lived records, each in its own arena:
// one fills up while others keep free pages. Without trimming, the process would use several times
// its need. Stateless; thread-safe.
#pragma once

#include <cstdint>

namespace gantry {

struct HeapUse {
  uint64_t allocated_bytes = 0;  // allocated from malloc by this program
  uint64_t resident_bytes = 0;   // this process's, without files and shared memory
};
HeapUse ReadHeapUse();

// Returns free pages to the system if residency exceeds allocation by a quarter and 16 MiB. Takes
// less than a millisecond for 40 MiB. Returns whether it did.
bool ReturnFreeHeap();

}  // namespace gantry
