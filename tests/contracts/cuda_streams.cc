#include "tests/contracts/cuda_streams.h"

#include <string>
#include <utility>

#include "tests/contracts/cuda_allocations.h"

namespace gantry::testing {

namespace cuda = gpu::cuda;

namespace {

cuda::Stream CudaStreamOf(gpu::StreamHandle stream) {
  return reinterpret_cast<cuda::Stream>(static_cast<uint64_t>(stream));
}

}  // namespace

Result<std::unique_ptr<GpuStreams>> CudaStreams::On(int ordinal) {
  ASSIGN_OR_RETURN(DynamicLibrary library, DynamicLibrary::Open("libcuda.so.1"));
  std::unique_ptr<CudaStreams> made(new CudaStreams(std::move(library)));
  RETURN_IF_ERROR(made->Bind(ordinal));
  return made;
}

Status CudaStreams::Bind(int ordinal) {
  RETURN_IF_ERROR(library_.Bind("cuDeviceGet", &device_get_));
  RETURN_IF_ERROR(library_.Bind("cuDevicePrimaryCtxRetain", &retain_));
  RETURN_IF_ERROR(library_.Bind("cuDevicePrimaryCtxRelease_v2", &release_));
  RETURN_IF_ERROR(library_.Bind("cuCtxPushCurrent_v2", &push_));
  RETURN_IF_ERROR(library_.Bind("cuCtxPopCurrent_v2", &pop_));
  RETURN_IF_ERROR(library_.Bind("cuStreamCreate", &create_));
  RETURN_IF_ERROR(library_.Bind("cuStreamDestroy_v2", &destroy_));
  RETURN_IF_ERROR(library_.Bind("cuStreamSynchronize", &synchronize_));
  RETURN_IF_ERROR(library_.Bind("cuStreamBeginCapture_v2", &begin_capture_));
  RETURN_IF_ERROR(library_.Bind("cuStreamEndCapture", &end_capture_));
  RETURN_IF_ERROR(library_.Bind("cuLaunchHostFunc", &launch_host_function_));
  RETURN_IF_ERROR(library_.Bind("cuMemsetD8Async", &fill_));
  RETURN_IF_ERROR(CheckCuda(device_get_(&device_, ordinal), "cuDeviceGet"));
  return CheckCuda(retain_(&context_, device_), "cuDevicePrimaryCtxRetain");
}

CudaStreams::~CudaStreams() {
  if (context_ == nullptr) return;
  DestroyAll();
  release_(device_);
}

template <typename Call>
Status CudaStreams::InContext(const char* what, Call call) {
  RETURN_IF_ERROR(CheckCuda(push_(context_), "cuCtxPushCurrent"));
  const cuda::Result result = call();
  cuda::Context popped = nullptr;
  pop_(&popped);
  return CheckCuda(result, what);
}

Result<gpu::StreamHandle> CudaStreams::Create(bool blocking) {
  cuda::Stream stream = nullptr;
  RETURN_IF_ERROR(InContext(
      "cuStreamCreate", [&] { return create_(&stream, blocking ? 0 : cuda::kStreamNonBlocking); }));
  return gpu::StreamHandle{reinterpret_cast<uint64_t>(stream)};
}

Status CudaStreams::Destroy(gpu::StreamHandle stream) {
  return InContext("cuStreamDestroy", [&] { return destroy_(CudaStreamOf(stream)); });
}

Status CudaStreams::LaunchOnHost(gpu::StreamHandle stream, void (*function)(void*),
                                 void* argument) {
  return InContext("cuLaunchHostFunc",
                   [&] { return launch_host_function_(CudaStreamOf(stream), function, argument); });
}

Status CudaStreams::Fill(gpu::StreamHandle stream, gpu::DeviceAddress to, uint8_t value,
                         uint64_t bytes) {
  return InContext("cuMemsetD8Async",
                   [&] { return fill_(NumberOf(to), value, bytes, CudaStreamOf(stream)); });
}

Status CudaStreams::Synchronize(gpu::StreamHandle stream) {
  return InContext("cuStreamSynchronize", [&] { return synchronize_(CudaStreamOf(stream)); });
}

Status CudaStreams::BeginCapture(gpu::StreamHandle stream) {
  constexpr int kModeGlobal = 0;
  return InContext("cuStreamBeginCapture",
                   [&] { return begin_capture_(CudaStreamOf(stream), kModeGlobal); });
}

Status CudaStreams::EndCapture(gpu::StreamHandle stream) {
  void* graph = nullptr;  // an empty one, which is left to the driver
  return InContext("cuStreamEndCapture",
                   [&] { return end_capture_(CudaStreamOf(stream), &graph); });
}

}  // namespace gantry::testing
