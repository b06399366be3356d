// Streams as a workload's framework has them, which can be held back. Of NVIDIA's driver or of the
// fake, whichever library is found first. One thread at a time.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "lib/base/dynamic_library.h"
#include "lib/gpu/cuda_abi.h"
#include "lib/gpu/gpu_driver.h"

namespace gantry::testing {

class CudaStreams {
 public:
  // REQUIRES that the driver is loaded. In the primary context of the device.
  static Result<std::unique_ptr<CudaStreams>> On(int ordinal);
  ~CudaStreams();  // lets go what is held, and waits
  CudaStreams(const CudaStreams&) = delete;
  CudaStreams& operator=(const CudaStreams&) = delete;

  Result<gpu::StreamHandle> New(bool blocking = false);
  // What the stream is given from here on is not begun before LetGo.
  Status Hold(gpu::StreamHandle stream);
  void LetGo();
  Status Fill(gpu::StreamHandle stream, gpu::DeviceAddress to, uint8_t value, uint64_t bytes);
  Status Synchronize(gpu::StreamHandle stream);
  Status BeginCapture(gpu::StreamHandle stream);
  // Whether something has spoilt the graph.
  Status EndCapture(gpu::StreamHandle stream);

 private:
  explicit CudaStreams(DynamicLibrary library) : library_(std::move(library)) {}
  Status Bind(int ordinal);
  template <typename Call>
  Status InContext(const char* what, Call call);

  DynamicLibrary library_;
  gpu::cuda::Device device_ = 0;
  gpu::cuda::Context context_ = nullptr;
  std::vector<gpu::cuda::Stream> made_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int held_ = 0;
  bool go_ = false;

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
