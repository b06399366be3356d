// libcuda.so.1 of machines without a GPU: streams themselves, default ones too, what is captured of
// them, and values that they write.
#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "tests/fakes/cuda/fake_context.h"
#include "tests/fakes/cuda/fake_stream.h"

namespace gantry::fake_cuda {
namespace {

constexpr uint64_t kPerThread = 2;  // 0 and 1 are the legacy one
constexpr cuda::Result kIllegalAddress = 700;

std::atomic<gpu::cuda::Result> capture_result = cuda::kSuccess;  // of the graph that is captured
std::atomic<const FakeStream*> captured = nullptr;
thread_local int capture_mode = 0;  // as CUDA numbers them
std::mutex default_streams_mutex;

// Unlike the vendor's, the legacy stream and blocking ones do not wait for each other here.
const StreamHolder& DefaultStream(uint64_t handle) {
  thread_local std::map<const FakeContext*, StreamHolder> of_this_thread;
  FakeContext& context = *current.back();
  const std::lock_guard lock(default_streams_mutex);
  StreamHolder& stream = handle == kPerThread ? of_this_thread[&context] : context.legacy_stream;
  if (stream == nullptr) {
    stream = std::make_shared<FakeStream>(&context, context.error, /*blocking=*/true);
  }
  return stream;
}

}  // namespace

cuda::Result SpoilCapture() {
  if (captured == nullptr || capture_mode == cuda::kCaptureModeRelaxed) return cuda::kSuccess;
  capture_result = cuda::kStreamCaptureInvalidated;
  return cuda::kStreamCaptureUnsupported;
}

const StreamHolder& HolderOf(cuda::Stream stream) {
  const auto handle = reinterpret_cast<uint64_t>(stream);
  return handle <= kPerThread ? DefaultStream(handle) : *reinterpret_cast<StreamHolder*>(stream);
}

}  // namespace gantry::fake_cuda

using namespace gantry::fake_cuda;
namespace cuda = gantry::gpu::cuda;

extern "C" {

cuda::Result cuStreamCreate(cuda::Stream* stream, unsigned flags) {
  FAKE_CALL_IN_CONTEXT(cuStreamCreate);
  FakeContext& context = *current.back();
  *stream = reinterpret_cast<cuda::Stream>(new StreamHolder(std::make_shared<FakeStream>(
      &context, context.error, (flags & cuda::kStreamNonBlocking) == 0)));
  return cuda::kSuccess;
}
cuda::Result cuStreamDestroy_v2(cuda::Stream stream) {
  FAKE_CALL(cuStreamDestroy);
  Of(stream)->Synchronize();
  delete reinterpret_cast<StreamHolder*>(stream);
  return ErrorOfCurrent();
}
cuda::Result cuStreamSynchronize(cuda::Stream stream) {
  Of(stream)->Synchronize();
  return ErrorOfCurrent();
}
cuda::Result cuStreamGetCtx(cuda::Stream stream, cuda::Context* context) {
  FAKE_CALL_IN_CONTEXT(cuStreamGetCtx);
  *context = reinterpret_cast<cuda::Context>(Of(stream)->context());
  return cuda::kSuccess;
}
cuda::Result cuStreamGetId(cuda::Stream stream, unsigned long long* id) {
  FAKE_CALL_IN_CONTEXT(cuStreamGetId);
  if (captured == Of(stream)) {
    capture_result = cuda::kStreamCaptureInvalidated;
    return cuda::kStreamCaptureUnsupported;
  }
  *id = Of(stream)->id();
  return cuda::kSuccess;
}

cuda::Result cuThreadExchangeStreamCaptureMode(int* mode) {
  std::swap(*mode, capture_mode);
  return cuda::kSuccess;
}
cuda::Result cuStreamBeginCapture_v2(cuda::Stream stream, int) {
  capture_result = cuda::kSuccess;
  captured = Of(stream);
  return cuda::kSuccess;
}
cuda::Result cuStreamEndCapture(cuda::Stream, void** graph) {
  *graph = nullptr;
  captured = nullptr;
  return capture_result;
}
cuda::Result cuStreamIsCapturing(cuda::Stream stream, int* status) {
  FAKE_CALL(cuStreamIsCapturing);
  const FakeStream* const busy = captured;
  const bool is_legacy = reinterpret_cast<uint64_t>(stream) < kPerThread;
  if (busy != nullptr && busy->blocking() && is_legacy) return cuda::kStreamCaptureImplicit;
  *status = busy == nullptr || busy != Of(stream) ? cuda::kNotCaptured
            : capture_result == cuda::kSuccess    ? cuda::kCaptured
                                                  : cuda::kCaptureSpoilt;
  return cuda::kSuccess;
}

cuda::Result cuLaunchHostFunc(cuda::Stream stream, void (*function)(void*), void* argument) {
  FAKE_CALL_IN_CONTEXT(cuLaunchHostFunc);
  Of(stream)->Submit([=] { function(argument); });
  return cuda::kSuccess;
}
cuda::Result cuStreamWriteValue64_v2(cuda::Stream stream, cuda::DevicePtr address, uint64_t value,
                                     unsigned flags) {
  FAKE_CALL_IN_CONTEXT(cuStreamWriteValue64);
  if (Of(stream)->context() != current.back() || flags != cuda::kStreamWriteValueDefault ||
      address % sizeof(value) != 0) {
    return cuda::kInvalidValue;
  }
  if (!Memory().IsReached(address, sizeof(value))) return cuda::kInvalidValue;
  if (captured == Of(stream)) return cuda::kSuccess;  // a graph has it that nobody launches
  // So that callers who care for no order among themselves have none.
  std::this_thread::sleep_for(std::chrono::microseconds(1));
  Of(stream)->Submit([=, context = current.back(), life = current.back()->id.load()] {
    if (context->id != life) return;  // it was reset, and its work dropped
    // It may have gone since, which costs whoever uses the device all of it.
    if (!Memory().WriteReached(address, value)) context->error = kIllegalAddress;
  });
  return cuda::kSuccess;
}

}  // extern "C"
