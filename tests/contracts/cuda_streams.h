// As gpu_streams.h says, of CUDA.
#pragma once

#include <memory>

#include "lib/base/dynamic_library.h"
#include "lib/gpu/cuda/cuda_abi.h"
#include "tests/contracts/gpu_streams.h"

namespace gantry::testing {

class CudaStreams final : public GpuStreams {
 public:
  static Result<std::unique_ptr<GpuStreams>> On(int ordinal);
  ~CudaStreams() override;

  Status Fill(gpu::StreamHandle stream, gpu::DeviceAddress to, uint8_t value,
              uint64_t bytes) override;
  Status Synchronize(gpu::StreamHandle stream) override;
  Status BeginCapture(gpu::StreamHandle stream) override;
  Status EndCapture(gpu::StreamHandle stream) override;

 private:
  explicit CudaStreams(DynamicLibrary library) : library_(std::move(library)) {}
  Status Bind(int ordinal);
  Result<gpu::StreamHandle> Create(bool blocking) override;
  Status Destroy(gpu::StreamHandle stream) override;
  Status LaunchOnHost(gpu::StreamHandle stream, void (*function)(void*), void* argument) override;
  template <typename Call>
  Status InContext(const char* what, Call call);

  DynamicLibrary library_;
  gpu::cuda::Device device_ = 0;
  gpu::cuda::Context context_ = nullptr;

  gpu::cuda::Result (*device_get_)(gpu::cuda::Device*, int);
  gpu::cuda::Result (*retain_)(gpu::cuda::Context*, gpu::cuda::Device);
  gpu::cuda::Result (*release_)(gpu::cuda::Device);
  gpu::cuda::Result (*push_)(gpu::cuda::Context);
  gpu::cuda::Result (*pop_)(gpu::cuda::Context*);
  gpu::cuda::Result (*create_)(gpu::cuda::Stream*, unsigned);
  gpu::cuda::Result (*destroy_)(gpu::cuda::Stream);
  gpu::cuda::Result (*synchronize_)(gpu::cuda::Stream);
  gpu::cuda::Result (*begin_capture_)(gpu::cuda::Stream, int mode);
  gpu::cuda::Result (*end_capture_)(gpu::cuda::Stream, void** graph);
  gpu::cuda::Result (*launch_host_function_)(gpu::cuda::Stream, void (*)(void*), void*);
  gpu::cuda::Result (*fill_)(gpu::cuda::DevicePtr, unsigned char, size_t, gpu::cuda::Stream);
};

}  // namespace gantry::testing
