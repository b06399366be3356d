// As gpu_streams.h says, of HIP.
#pragma once

#include <memory>

#include "lib/base/dynamic_library.h"
#include "lib/gpu/hip/hip_abi.h"
#include "tests/contracts/gpu_streams.h"

namespace gantry::testing {

class HipStreams final : public GpuStreams {
 public:
  static Result<std::unique_ptr<GpuStreams>> On(int ordinal);
  ~HipStreams() override { DestroyAll(); }

  Status Fill(gpu::StreamHandle stream, gpu::DeviceAddress to, uint8_t value,
              uint64_t bytes) override;
  Status Synchronize(gpu::StreamHandle stream) override;
  Status BeginCapture(gpu::StreamHandle stream) override;
  Status EndCapture(gpu::StreamHandle stream) override;

 private:
  HipStreams(DynamicLibrary library, int device) : library_(std::move(library)), device_(device) {}
  Status Bind();
  Result<gpu::StreamHandle> Create(bool blocking) override;
  Status Destroy(gpu::StreamHandle stream) override;
  Status LaunchOnHost(gpu::StreamHandle stream, void (*function)(void*), void* argument) override;
  template <typename Call>
  Status OnDevice(const char* what, Call call);

  DynamicLibrary library_;
  const gpu::hip::Device device_;
  // As in hip_abi.h, and what tests alone call.
  gpu::hip::Functions call_ = {};
  gpu::hip::Result (*begin_capture_)(gpu::hip::Stream, int mode);
  gpu::hip::Result (*end_capture_)(gpu::hip::Stream, void** graph);
  gpu::hip::Result (*launch_host_function_)(gpu::hip::Stream, void (*)(void*), void*);
};

}  // namespace gantry::testing
