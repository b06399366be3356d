#include "sidecar/app/free_heap.h"

#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

namespace gantry {
namespace {

constexpr uint64_t kSlackBytes = uint64_t{16} << 20;
constexpr size_t kKeptAtTheTop = size_t{1} << 20;

}  // namespace

HeapUse ReadHeapUse() {
  const auto info = ::mallinfo2();
  HeapUse use;
  use.allocated_bytes = info.uordblks + info.hblkhd;
  std::ifstream statm("/proc/self/statm");
  uint64_t size = 0, resident = 0, shared = 0;
  statm >> size >> resident >> shared;
  use.resident_bytes =
      (resident - std::min(resident, shared)) * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  return use;
}

bool ReturnFreeHeap() {
  const HeapUse use = ReadHeapUse();
  // Another malloc says nothing of itself here, and knows nothing of malloc_trim.
  if (use.allocated_bytes == 0) return false;
  if (use.resident_bytes < use.allocated_bytes + use.allocated_bytes / 4 + kSlackBytes) {
    return false;
  }
  ::malloc_trim(kKeptAtTheTop);
  return true;
}

}  // namespace gantry
