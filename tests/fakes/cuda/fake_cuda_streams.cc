// libcuda.so.1 of machines without a GPU: streams themselves, default ones too, what is captured of
// them, and values that they write.
#include <chrono>
#include <memory>
#include <thread>

#include "tests/fakes/cuda/fake_cuda.h"

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
  if (const int spoilt = gantry::fake_gpu::SpoilCaptureOf(Of(stream)); spoilt != 0) return spoilt;
  *id = Of(stream)->id();
  return cuda::kSuccess;
}

cuda::Result cuThreadExchangeStreamCaptureMode(int* mode) {
  gantry::fake_gpu::ExchangeCaptureMode(mode);
  return cuda::kSuccess;
}
cuda::Result cuStreamBeginCapture_v2(cuda::Stream stream, int) {
  gantry::fake_gpu::BeginCapture(Of(stream));
  return cuda::kSuccess;
}
cuda::Result cuStreamEndCapture(cuda::Stream, void** graph) {
  *graph = nullptr;
  return gantry::fake_gpu::EndCapture();
}
cuda::Result cuStreamIsCapturing(cuda::Stream stream, int* status) {
  FAKE_CALL(cuStreamIsCapturing);
  const bool is_legacy = reinterpret_cast<uint64_t>(stream) < 2;
  return gantry::fake_gpu::CaptureStatus(Of(stream), is_legacy, status);
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
  if (gantry::fake_gpu::IsCaptured(Of(stream)))
    return cuda::kSuccess;  // a graph has it that nobody launches
  // So that callers who care for no order among themselves have none.
  std::this_thread::sleep_for(std::chrono::microseconds(1));
  Of(stream)->Submit([=, context = current.back(), life = current.back()->id.load()] {
    if (context->id != life) return;  // it was reset, and its work dropped
    // It may have gone since, which costs whoever uses the device all of it.
    if (!Memory().WriteReached(address, value)) context->error = gantry::fake_gpu::kIllegalAddress;
  });
  return cuda::kSuccess;
}

}  // extern "C"
