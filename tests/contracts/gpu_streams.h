// Streams as a workload's framework has them, which can be held back. Of a vendor's driver or of
// its fake, whichever is loaded. One thread at a time.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "lib/gpu/shared/gpu_driver.h"

namespace gantry::testing {

class GpuStreams {
 public:
  // REQUIRES that the driver is loaded. In the context that the device has in this process.
  static Result<std::unique_ptr<GpuStreams>> On(int ordinal);
  virtual ~GpuStreams() = default;  // lets go what is held, and waits
  GpuStreams(const GpuStreams&) = delete;
  GpuStreams& operator=(const GpuStreams&) = delete;

  Result<gpu::StreamHandle> New(bool blocking = false);
  // What the stream is given from here on is not begun before LetGo.
  Status Hold(gpu::StreamHandle stream);
  void LetGo();
  virtual Status Fill(gpu::StreamHandle stream, gpu::DeviceAddress to, uint8_t value,
                      uint64_t bytes) = 0;
  virtual Status Synchronize(gpu::StreamHandle stream) = 0;
  virtual Status BeginCapture(gpu::StreamHandle stream) = 0;
  // Whether something has spoilt the graph.
  virtual Status EndCapture(gpu::StreamHandle stream) = 0;

 protected:
  GpuStreams() = default;
  void DestroyAll();  // before what destroys them goes

 private:
  virtual Result<gpu::StreamHandle> Create(bool blocking) = 0;
  virtual Status Destroy(gpu::StreamHandle stream) = 0;
  virtual Status LaunchOnHost(gpu::StreamHandle stream, void (*function)(void*),
                              void* argument) = 0;

  std::vector<gpu::StreamHandle> made_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int held_ = 0;
  bool go_ = false;
};

}  // namespace gantry::testing
