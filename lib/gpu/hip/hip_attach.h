// Memory of other processes on its way into this one: one attach at a time, and only of as much as
// its descriptor stands for. Thread-safe.
#pragma once

#include <cstdint>

#include "lib/base/mutex.h"
#include "lib/base/result.h"

namespace gantry::gpu {

// Held while memory is attached: attaches beside each other were seen to map wrong memory
// (ROCm/rocm-systems issue 11892).
Mutex& AttachMutex();

// kFdTooShort when the dma-buf ends before the range: the runtime maps what it is told.
Status CheckDmaBufHolds(int fd, uint64_t offset, uint64_t size);

}  // namespace gantry::gpu
