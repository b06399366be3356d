// A GPU's primary context: the one that the workload's runtime has, too. Logs nothing, so that it
// can be used inside of a workload. Thread-safe.
#pragma once

#include <memory>

#include "lib/base/mutex.h"
#include "lib/gpu/cuda/cuda_calls.h"
#include "lib/gpu/shared/gpu_types.h"

namespace gantry::gpu {

// Makes a context current for a scope; the caller's own is current again afterwards. Meanwhile no
// call of this thread disturbs a graph that the workload captures: it is none of the graph's.
class CudaCurrent {
 public:
  CudaCurrent(const cuda::Calls& calls, cuda::Context context)
      : calls_(calls), result_(calls->ctx_push_current(context)) {
    if (result_ == cuda::kSuccess) calls_->thread_exchange_stream_capture_mode(&capture_mode_);
  }
  CudaCurrent(const CudaCurrent&) = delete;
  CudaCurrent& operator=(const CudaCurrent&) = delete;
  ~CudaCurrent() {
    if (result_ != cuda::kSuccess) return;
    cuda::Context popped = nullptr;
    calls_->thread_exchange_stream_capture_mode(&capture_mode_);
    calls_->ctx_pop_current(&popped);
  }
  cuda::Result result() const { return result_; }
  Status status() const { return calls_.Check(result_, "cuCtxPushCurrent"); }

 private:
  const cuda::Calls& calls_;
  const cuda::Result result_;
  int capture_mode_ = cuda::kCaptureModeRelaxed;  // then the thread's own
};

// A retained primary context; the last of its streams, events and memory lets it go.
class CudaPrimary {
 public:
  static Result<std::shared_ptr<const CudaPrimary>> Retain(std::shared_ptr<const cuda::Calls> calls,
                                                           const DeviceInfo& device);
  CudaPrimary(const CudaPrimary&) = delete;
  CudaPrimary& operator=(const CudaPrimary&) = delete;
  ~CudaPrimary();

  const cuda::Calls& calls() const { return *calls_; }
  const DeviceInfo& info() const { return info_; }
  cuda::Device device() const { return device_; }
  cuda::Context context() const { return context_; }

  Status LoadKernels() const EXCLUDES(kernels_mutex_);
  // Null before LoadKernels.
  cuda::Function copy_kernel() const EXCLUDES(kernels_mutex_);

  // Whether the program has ended the context since (cudaDeviceReset), and what was in it: its
  // handle may stand for another one by now. False where the driver cannot tell.
  bool WasReset() const;

  // Calls a function with the context current, and says what went wrong with `what`.
  template <typename Call>
  Status Run(const char* what, Call call) const {
    const CudaCurrent current(*calls_, context_);
    RETURN_IF_ERROR(current.status());
    const cuda::Result result = call();
    return result == cuda::kSuccess ? Status()
                                    : calls_->Check(result, what + (" on GPU " + info_.uuid));
  }

 private:
  CudaPrimary(std::shared_ptr<const cuda::Calls> calls, const DeviceInfo& info)
      : calls_(std::move(calls)), info_(info) {}

  const std::shared_ptr<const cuda::Calls> calls_;
  const DeviceInfo info_;
  cuda::Device device_ = 0;
  cuda::Context context_ = nullptr;
  unsigned long long id_ = 0;  // of the context, which no other one gets; 0: not known
  mutable Mutex kernels_mutex_;
  mutable cuda::Module kernels_ GUARDED_BY(kernels_mutex_) = nullptr;
  mutable cuda::Function copy_kernel_ GUARDED_BY(kernels_mutex_) = nullptr;
};

}  // namespace gantry::gpu
