#include "lib/gpu/cuda/cuda_workload_device.h"

#include <string>

#include "lib/gpu/cuda/cuda_pointers.h"

namespace gantry::gpu {

Status CudaApi::CanWriteInStreams(const CudaPrimary& primary, int* can) {
  const cuda::Calls& calls = primary.calls();
  const cuda::Result asked =
      calls->device_get_attribute(can, cuda::kCanUse64BitStreamMemOps, primary.device());
  if (asked == cuda::kInvalidValue) return {};  // the driver is older than the attribute
  return calls.Check(asked, "cuDeviceGetAttribute");
}

// Default streams are of the caller's current context; without one, runtimes would take theirs.
Status CudaWorkloadDevice::CheckCurrent() const {
  const cuda::Calls& calls = device_->calls();
  cuda::Context context = nullptr;
  RETURN_IF_ERROR(calls.Check(calls->ctx_get_current(&context), "cuCtxGetCurrent"));
  if (context == nullptr || context == device_->context()) return {};
  cuda::Device device = 0;
  cuda::Uuid uuid = {};
  RETURN_IF_ERROR(calls.Check(calls->ctx_get_device(&device), "cuCtxGetDevice"));
  RETURN_IF_ERROR(calls.Check(calls->device_get_uuid(&uuid, device), "cuDeviceGetUuid"));
  const std::string& mine = device_->info().uuid;
  const std::string other = cuda::TextOf(uuid);
  return Fail(ErrorCode::kInvalidArgument,
              other == mine
                  ? "a default stream is of the current context, which is another one of GPU " +
                        mine + " than runtimes use (the primary one)"
                  : "a default stream is of the GPU that is current, which is GPU " + other +
                        " and not GPU " + mine,
              "make GPU " + mine + " current (cudaSetDevice), make a timeline for GPU " + other +
                  ", or pass a stream that was created",
              "stream");
}

Result<uint64_t> CudaWorkloadDevice::IdOf(StreamHandle stream) const {
  const cuda::Calls& calls = device_->calls();
  RETURN_IF_ERROR(calls.Require(cuda::Feature::kStreamWrites));
  RETURN_IF_ERROR(device_->CheckNotReset());
  if (IsDefault(stream)) RETURN_IF_ERROR(CheckCurrent());
  const CudaCurrent current(calls, device_->context());
  RETURN_IF_ERROR(current.status());
  RETURN_IF_ERROR(CheckNotCaptured(stream));
  cuda::Context context = device_->context();
  if (!IsDefault(stream)) {
    const cuda::Result told = calls->stream_get_ctx(NativeOf(stream), &context);
    // It is of a part of a device, which is a context of its own, or of none that has a name here.
    const bool is_others = told == cuda::kNotSupported || told == cuda::kInvalidHandle;
    if (!is_others) RETURN_IF_ERROR(calls.Check(told, "cuStreamGetCtx"));
    if (is_others) context = nullptr;
  }
  if (context != device_->context()) {
    return Fail(ErrorCode::kInvalidArgument,
                "the stream is none of GPU " + device_->info().uuid +
                    " in the context that runtimes use (the primary one)",
                "name the GPU of the stream when the timeline is made; for a stream of another "
                "context record an event, have a stream of the primary one wait for it, and signal "
                "there",
                "stream");
  }
  return NumberOfStream(stream);
}

}  // namespace gantry::gpu
