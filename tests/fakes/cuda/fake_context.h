// What the calls of the fake share: the contexts of this process, and how a call can be made to
// fail. Thread-safe but for `current`, which is each thread's own.
#pragma once

#include <atomic>
#include <memory>
#include <set>
#include <vector>

#include "lib/base/unique_fd.h"
#include "lib/gpu/cuda_abi.h"
#include "tests/fakes/cuda/fake_gpus.h"
#include "tests/fakes/cuda/fake_memory.h"
#include "tests/fakes/cuda/fake_stream.h"

namespace gantry::fake_cuda {

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
  std::atomic<cuda::Result> error = cuda::kSuccess;
  StreamHolder legacy_stream;  // null until somebody uses it
};

// Contexts that are current for this thread; the last is the one that counts.
extern thread_local std::vector<FakeContext*> current;

inline FakeMemory& Memory() { return FakeMemory::Instance(); }
inline FakeGpus& Gpus() { return FakeGpus::Instance(); }
inline bool IsDevice(int device) {
  return device >= 0 && device < static_cast<int>(Gpus().visible().size());
}

inline constexpr cuda::Result kInvalidDevice = 101;
inline constexpr cuda::Result kPeerAccessUnsupported = 217;

inline cuda::Result ErrorOfCurrent() {
  return current.empty() ? cuda::kSuccess : current.back()->error.load();
}
// What a stream stands for, in the current context.
const StreamHolder& HolderOf(cuda::Stream stream);
inline FakeStream* Of(cuda::Stream stream) { return HolderOf(stream).get(); }
// Whether kernels of a context may touch memory.
bool MayFollow(const FakeContext& context, const Block& block);

// A call that is none of a graph's, from a thread that has not said so, spoils a capture of the
// process. Answers the error of that call.
cuda::Result SpoilCapture();

}  // namespace gantry::fake_cuda

// Begins a call by the vendor's name: one that a test lets fail, or that needs a context and has
// none, ends at once.
#define FAKE_CALL(name) \
  if (const int failure = gantry::fake_cuda::Gpus().FailureOf(#name); failure != 0) return failure
#define FAKE_CALL_IN_CONTEXT(name)                                                     \
  FAKE_CALL(name);                                                                     \
  if (gantry::fake_cuda::current.empty()) return gantry::gpu::cuda::kInvalidContext;   \
  if (const int error = gantry::fake_cuda::ErrorOfCurrent(); error != 0) return error; \
  if (const int spoilt = gantry::fake_cuda::SpoilCapture(); spoilt != 0) return spoilt
