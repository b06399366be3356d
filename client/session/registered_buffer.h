// A buffer of this process that the sidecar knows. Fields without a lock are constant or atomic.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "client/memory/arena.h"
#include "client/memory/gpu_resolver.h"
#include "client/session/client_json.h"
#include "lib/base/mutex.h"
#include "lib/base/result.h"

namespace gantry::client {

// Keeps its arenas alive: memory is unmapped only after the last buffer in it is gone. Memory of
// GPUs is not kept, as nobody but its owner can; it stays exported until the buffer is
// unregistered.
struct RegisteredBuffer {
  std::string name;
  std::string id;
  std::string generation;
  uint64_t bytes = 0;
  std::vector<std::shared_ptr<Arena>> arenas;
  std::atomic<bool> registered{true};
  bool on_gpu = false;  // constant: whether there are or were pieces on a GPU
  std::vector<const GpuAllocation*> gpu_allocations;  // to be compared alone; the set's lock
  BufferRequest again;  // constant: without pieces, of a buffer on a GPU; resumes it after a sleep
  Mutex mutex;
  std::vector<GpuPiece> gpu_pieces GUARDED_BY(mutex);
  bool asleep GUARDED_BY(mutex) = false;  // its memory is to be registered again before it is used
};
using BufferPointer = std::shared_ptr<RegisteredBuffer>;
// The buffer's memory on GPUs is of these from now on. REQUIRES that nobody else sees
// buffer->gpu_allocations.
void TakeGpuPieces(const std::vector<ResolvedPiece>& pieces, RegisteredBuffer* buffer);
// Resuming it registers its memory again.
bool IsAsleep(RegisteredBuffer& buffer);
// Whether the memory of a buffer on a GPU is still what was registered. `last`, where it is given:
// the allocation that was looked at last, which is not looked at again.
Status CheckGpuMemory(RegisteredBuffer& buffer, std::string field,
                      std::shared_ptr<const GpuAllocation>* last = nullptr);

}  // namespace gantry::client
