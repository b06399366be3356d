// What the calls of the fake share: the version that it acts, which device is current, and what
// becomes of an error. Each thread's own.
#pragma once

#include <cstdint>
#include <mutex>
#include <utility>

#include "lib/gpu/hip/hip_abi.h"
#include "tests/fakes/gpu/fake_capture.h"
#include "tests/fakes/gpu/fake_context.h"

namespace gantry::fake_hip {

namespace hip = gpu::hip;

using fake_gpu::Address;
using fake_gpu::Block;
using fake_gpu::BlockKind;
using fake_gpu::FakeContext;
using fake_gpu::FakeStream;
using fake_gpu::GpuAt;
using fake_gpu::Gpus;
using fake_gpu::IsDevice;
using fake_gpu::Memory;
using fake_gpu::StreamHolder;

// As hipRuntimeGetVersion answers: of the library that this is.
extern const int kVersion;

extern thread_local int current_device;
extern thread_local hip::Result last_error;

inline Address AddressOf(const void* pointer) { return reinterpret_cast<Address>(pointer); }
inline void* PointerTo(Address address) { return reinterpret_cast<void*>(address); }

// A call by the vendor's name, which a test can let fail. What it answers is kept for
// hipGetLastError.
template <typename Body>
hip::Result Call(const char* name, Body body) {
  hip::Result result = Gpus().FailureOf(name);
  if (result == hip::kSuccess) result = body();
  if (result != hip::kSuccess) last_error = result;
  return result;
}

// The context of the current device, which begins to live with the first call that needs it.
hip::Result UseContext(FakeContext** context);

// A kernel that touches what it must not ends the process, as with the vendor's runtime.
void Fault(FakeContext& context, hip::Result error);

// A call that uses the current device, and so spoils a graph that is captured.
template <typename Body>
hip::Result CallOnDevice(const char* name, Body body) {
  return Call(name, [&]() -> hip::Result {
    FakeContext* context = nullptr;
    if (const hip::Result used = UseContext(&context); used != hip::kSuccess) return used;
    if (const hip::Result spoilt = fake_gpu::SpoilCapture(); spoilt != hip::kSuccess) return spoilt;
    return body(*context);
  });
}

inline const StreamHolder& HolderOf(FakeContext& context, hip::Stream stream) {
  return fake_gpu::HolderOf(context, reinterpret_cast<uint64_t>(stream));
}

// Whether a copy stays within what either address is in.
hip::Result CheckCopy(Address to, Address from, size_t bytes);
void Move(Address to, Address from, size_t bytes);

}  // namespace gantry::fake_hip
