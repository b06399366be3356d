#include "lib/gpu/hip/hip_workload_device.h"

#include <string>

namespace gantry::gpu {

Status HipApi::CanWriteInStreams(const HipDevice& device, int* can) {
  return device.Call(&Functions::device_get_attribute, can, hip::kCanUseStreamWaitValue,
                     device.device());
}

Result<int> HipWorkloadDevice::OrdinalOf(StreamHandle stream) const {
  const hip::Calls& calls = device_->calls();
  int ordinal = -1;
  if (IsDefault(stream)) {
    RETURN_IF_ERROR(calls.Check(calls->get_device(&ordinal), "hipGetDevice"));
    return ordinal;
  }
  const HipCurrent current(calls, device_->device());
  RETURN_IF_ERROR(current.status());
  RETURN_IF_ERROR(
      calls.Check(calls->stream_get_device(NativeOf(stream), &ordinal), "hipStreamGetDevice"));
  return ordinal;
}

Result<uint64_t> HipWorkloadDevice::IdOf(StreamHandle stream) const {
  const hip::Calls& calls = device_->calls();
  RETURN_IF_ERROR(calls.Require(hip::Feature::kStreamWrites));
  {
    const hip::LastErrorKept kept(calls);
    RETURN_IF_ERROR(CheckNotCaptured(stream));
  }
  ASSIGN_OR_RETURN(const int ordinal, OrdinalOf(stream));
  if (ordinal != device_->device()) {
    return Fail(ErrorCode::kInvalidArgument,
                "the stream is of GPU number " + std::to_string(ordinal) + " and not of GPU " +
                    device_->info().uuid +
                    (IsDefault(stream) ? ": a default stream is of the GPU that is current" : ""),
                "make that GPU current (hipSetDevice), name the GPU of the stream when the "
                "timeline is made, or pass a stream that was created there",
                "stream");
  }
  const HipCurrent current(calls, device_->device());
  RETURN_IF_ERROR(current.status());
  return NumberOfStream(stream);
}

}  // namespace gantry::gpu
