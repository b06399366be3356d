#include "lib/gpu/cuda/cuda_primary.h"

namespace gantry::gpu {

Result<std::shared_ptr<const CudaPrimary>> CudaPrimary::Open(
    std::shared_ptr<const cuda::Calls> calls, const DeviceInfo& device) {
  const cuda::Calls& use = *calls;
  cuda::Device number = 0;
  RETURN_IF_ERROR(use.Check(use->device_get(&number, device.ordinal), "cuDeviceGet"));
  cuda::Context context = nullptr;
  auto retained = use.Check(use->primary_ctx_retain(&context, number), "using GPU " + device.uuid);
  if (!retained && retained.error().code == ErrorCode::kResourceExhausted) {
    retained.error().hint = kLeaveMemoryFree;
  }
  RETURN_IF_ERROR(std::move(retained));
  unsigned long long id = 0;
  if (use->ctx_get_id != nullptr && use->ctx_get_id(context, &id) != cuda::kSuccess) id = 0;
  return std::shared_ptr<const CudaPrimary>(
      new CudaPrimary(std::move(calls), device, number, context, id));
}

bool CudaPrimary::WasReset() const {
  if (id_ == 0) return false;
  unsigned long long now = 0;
  const cuda::Result result = calls()->ctx_get_id(context(), &now);
  return (result == cuda::kSuccess && now != id_) || result == cuda::kContextIsDestroyed ||
         result == cuda::kInvalidContext || result == cuda::kDeinitialized;
}

Status CudaPrimary::CheckNotReset() const {
  if (!WasReset()) return {};
  return Fail(ErrorCode::kDeviceError,
              "the context of GPU " + info().uuid +
                  " was reset (cudaDeviceReset), and with it all that was pinned there",
              "make a new timeline, and pin arenas anew");
}

CudaPrimary::~CudaPrimary() {
  UnloadKernels();
  calls()->primary_ctx_release(device_);
}

Status CudaApi::LoadCopyKernel(const CudaPrimary& primary, cuda::Module* kernels) {
  auto loaded = primary.Check(&cuda::Functions::module_load_data,
                              primary.calls()->module_load_data(kernels, CopyKernelPtx().data()));
  if (!loaded) {
    loaded.error().hint =
        "the driver compiles kernels with libnvidia-ptxjitcompiler.so.1, which belongs beside "
        "libcuda.so.1; in a container, ask for the driver's compute libraries";
  }
  return loaded;
}

}  // namespace gantry::gpu
