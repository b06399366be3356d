// Memory that malloc keeps although it is free. Records that live for long are allocated by many
// threads, each in an arena of its own, so that one arena is full while the others keep free pages:
// the process would take several times what it uses. Stateless; thread-safe.
#pragma once

#include <cstdint>

namespace gantry {

struct HeapUse {
  uint64_t allocated_bytes = 0;  // by this program, from malloc
  uint64_t resident_bytes = 0;   // of the process, without files and shared memory
};
HeapUse ReadHeapUse();

// Returns free pages to the system when more is resident than a quarter and 16 MiB above what is
// allocated. Takes less than a millisecond for 40 MiB. Whether it did.
bool ReturnFreeHeap();

}  // namespace gantry
