#include "tests/contracts/gpu_streams.h"

#include "tests/contracts/cuda_streams.h"
#include "tests/contracts/gpu_vendor.h"
#include "tests/contracts/hip_streams.h"

namespace gantry::testing {

Result<std::unique_ptr<GpuStreams>> GpuStreams::On(int ordinal) {
  return IsAmd() ? HipStreams::On(ordinal) : CudaStreams::On(ordinal);
}

void GpuStreams::DestroyAll() {
  LetGo();
  for (const gpu::StreamHandle stream : made_) {
    static_cast<void>(Synchronize(stream));
    static_cast<void>(Destroy(stream));
  }
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return held_ == 0; });
}

Result<gpu::StreamHandle> GpuStreams::New(bool blocking) {
  ASSIGN_OR_RETURN(const gpu::StreamHandle stream, Create(blocking));
  made_.push_back(stream);
  return stream;
}

Status GpuStreams::Hold(gpu::StreamHandle stream) {
  {
    const std::lock_guard lock(mutex_);
    go_ = false;
    ++held_;
  }
  const auto wait = [](void* me) {
    auto& streams = *static_cast<GpuStreams*>(me);
    std::unique_lock lock(streams.mutex_);
    streams.changed_.wait(lock, [&] { return streams.go_; });
    --streams.held_;
    streams.changed_.notify_all();
  };
  return LaunchOnHost(stream, wait, this);
}

void GpuStreams::LetGo() {
  const std::lock_guard lock(mutex_);
  go_ = true;
  changed_.notify_all();
}

}  // namespace gantry::testing
