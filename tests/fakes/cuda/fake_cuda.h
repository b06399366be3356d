// What the calls of the fake share: which contexts are current, and how a call can be made to fail.
// Each thread's own.
#pragma once

#include <cstdint>
#include <vector>

#include "lib/gpu/cuda/cuda_abi.h"
#include "tests/fakes/gpu/fake_capture.h"
#include "tests/fakes/gpu/fake_context.h"

namespace gantry::fake_cuda {

namespace cuda = gpu::cuda;

using fake_gpu::Block;
using fake_gpu::BlockKind;
using fake_gpu::ContextsMutex;
using fake_gpu::FakeContext;
using fake_gpu::FakeEvent;
using fake_gpu::FakeStream;
using fake_gpu::GpuAt;
using fake_gpu::Gpus;
using fake_gpu::IsDevice;
using fake_gpu::kInvalidDevice;
using fake_gpu::kNotFound;
using fake_gpu::Memory;
using fake_gpu::StreamHolder;
using fake_gpu::WholePages;

// The last is the one that counts.
extern thread_local std::vector<FakeContext*> current;

inline cuda::Result ErrorOfCurrent() {
  return current.empty() ? cuda::kSuccess : current.back()->error.load();
}
inline const StreamHolder& HolderOf(cuda::Stream stream) {
  return fake_gpu::HolderOf(*current.back(), reinterpret_cast<uint64_t>(stream));
}
inline FakeStream* Of(cuda::Stream stream) { return HolderOf(stream).get(); }

}  // namespace gantry::fake_cuda

// Begins a call by the vendor's name: one that a test lets fail, or that needs a context and has
// none, ends at once.
#define FAKE_CALL(name) \
  if (const int failure = gantry::fake_cuda::Gpus().FailureOf(#name); failure != 0) return failure
#define FAKE_CALL_IN_CONTEXT(name)                                                     \
  FAKE_CALL(name);                                                                     \
  if (gantry::fake_cuda::current.empty()) return gantry::gpu::cuda::kInvalidContext;   \
  if (const int error = gantry::fake_cuda::ErrorOfCurrent(); error != 0) return error; \
  if (const int spoilt = gantry::fake_gpu::SpoilCapture(); spoilt != 0) return spoilt
