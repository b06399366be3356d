#include "lib/gpu/cuda/cuda_primary.h"

#include <utility>

#include "lib/gpu/shared/copy_kernel_source.h"

namespace gantry::gpu {

Result<std::shared_ptr<const CudaPrimary>> CudaPrimary::Retain(
    std::shared_ptr<const cuda::Calls> calls, const DeviceInfo& device) {
  std::shared_ptr<CudaPrimary> made(new CudaPrimary(std::move(calls), device));
  const cuda::Calls& use = *made->calls_;
  RETURN_IF_ERROR(use.Check(use->device_get(&made->device_, device.ordinal), "cuDeviceGet"));
  auto retained = use.Check(use->primary_ctx_retain(&made->context_, made->device_),
                            "using GPU " + device.uuid);
  if (!retained && retained.error().code == ErrorCode::kResourceExhausted) {
    retained.error().hint =
        "a process that uses a GPU takes some hundred MiB of its memory: leave them free, e.g. by "
        "a lower "
        "gpu_memory_utilization of the engine";
  }
  RETURN_IF_ERROR(std::move(retained));
  if (use->ctx_get_id != nullptr && use->ctx_get_id(made->context_, &made->id_) != cuda::kSuccess) {
    made->id_ = 0;
  }
  return made;
}

bool CudaPrimary::WasReset() const {
  if (id_ == 0) return false;
  unsigned long long now = 0;
  const cuda::Result result = (*calls_)->ctx_get_id(context_, &now);
  return (result == cuda::kSuccess && now != id_) || result == cuda::kContextIsDestroyed ||
         result == cuda::kInvalidContext || result == cuda::kDeinitialized;
}

CudaPrimary::~CudaPrimary() {
  if (context_ == nullptr) return;
  const MutexLock lock(kernels_mutex_);
  if (kernels_ != nullptr) {
    const CudaCurrent current(*calls_, context_);
    if (current.status()) (*calls_)->module_unload(kernels_);
  }
  (*calls_)->primary_ctx_release(device_);
}

Status CudaPrimary::LoadKernels() const {
  const cuda::Calls& calls = *calls_;
  RETURN_IF_ERROR(calls.Require(cuda::Feature::kKernels));
  const MutexLock lock(kernels_mutex_);
  if (copy_kernel_ != nullptr) return {};
  const CudaCurrent current(calls, context_);
  RETURN_IF_ERROR(current.status());
  if (kernels_ == nullptr) {
    auto loaded = calls.Check(calls->module_load_data(&kernels_, CopyKernelPtx().data()),
                              "cuModuleLoadData on GPU " + info_.uuid);
    if (!loaded) {
      loaded.error().hint =
          "the driver compiles kernels with libnvidia-ptxjitcompiler.so.1, which belongs beside "
          "libcuda.so.1; in a container, ask for the driver's compute libraries";
    }
    RETURN_IF_ERROR(std::move(loaded));
  }
  return calls.Check(calls->module_get_function(&copy_kernel_, kernels_, kCopyKernelName),
                     "cuModuleGetFunction on GPU " + info_.uuid);
}

cuda::Function CudaPrimary::copy_kernel() const {
  const MutexLock lock(kernels_mutex_);
  return copy_kernel_;
}

}  // namespace gantry::gpu
