// The contexts of this process, one for each GPU, and what a kernel or a stream of one is.
// Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>

#include "lib/base/unique_fd.h"
#include "tests/fakes/gpu/fake_gpus.h"
#include "tests/fakes/gpu/fake_memory.h"
#include "tests/fakes/gpu/fake_results.h"
#include "tests/fakes/gpu/fake_stream.h"

namespace gantry::fake_gpu {

struct FakeContext {
  int ordinal = 0;
  int gpu = 0;       // the machine's number
  int retained = 0;  // also of one that was reset, which ends it and releases nothing
  // Of its life, which no other has; 0: nobody has retained it, or not since it was reset.
  std::atomic<uint64_t> id = 0;
  UniqueFd memory;      // what it costs
  std::set<int> peers;  // GPUs whose memory its kernels may follow, by the machine's number
  // Of a kernel: what every later call answers, while work that was given to its streams is
  // dropped.
  std::atomic<Result> error = kSuccess;
  StreamHolder legacy_stream;  // null until somebody uses it
};

inline FakeMemory& Memory() { return FakeMemory::Instance(); }
inline FakeGpus& Gpus() { return FakeGpus::Instance(); }
inline bool IsDevice(int device) {
  return device >= 0 && device < static_cast<int>(Gpus().visible().size());
}
// REQUIRES IsDevice.
inline int GpuAt(int device) { return Gpus().visible()[static_cast<size_t>(device)]; }
// Of a GPU of the machine; 0 for one that this process does not see.
int OrdinalOf(int gpu);

// Of the members of all contexts.
std::mutex& ContextsMutex();
// Null when nobody has retained one. REQUIRES ContextsMutex.
FakeContext* ContextOf(int ordinal);
// Begins its life where it has none. REQUIRES ContextsMutex and IsDevice.
Result Retain(int ordinal, FakeContext** context);
// Of one that nobody has retained any more, or that was reset. REQUIRES ContextsMutex.
void End(FakeContext& context);
// What its kernels' threads may have, 1024 bytes unless told. REQUIRES ContextsMutex.
Result SetStackSize(FakeContext& context, uint64_t bytes);
// So that its kernels may follow the other's memory. Takes ContextsMutex.
Result EnablePeer(FakeContext& context, int gpu);

// Whether kernels of a context may touch memory.
bool MayFollow(const FakeContext& context, const Block& block);

// What a stream stands for while a context is current; null and two small numbers are default ones.
const StreamHolder& HolderOf(FakeContext& current, uint64_t stream);

}  // namespace gantry::fake_gpu
