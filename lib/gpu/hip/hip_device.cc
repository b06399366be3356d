#include "lib/gpu/hip/hip_device.h"

#include <string>
#include <utility>

#include "lib/gpu/hip/hip_compiler.h"

namespace gantry::gpu {

HipCurrent::HipCurrent(const hip::Calls& calls, int ordinal)
    : calls_(calls), kept_(calls), ordinal_(ordinal) {
  result_ = calls_->get_device(&before_);
  if (result_ == hip::kSuccess && before_ != ordinal_) result_ = calls_->set_device(ordinal_);
  if (result_ == hip::kSuccess) calls_->thread_exchange_stream_capture_mode(&capture_mode_);
}

HipCurrent::~HipCurrent() {
  if (result_ != hip::kSuccess) return;
  calls_->thread_exchange_stream_capture_mode(&capture_mode_);
  if (before_ != ordinal_) calls_->set_device(before_);
}

Result<std::shared_ptr<const HipDevice>> HipDevice::Open(std::shared_ptr<const hip::Calls> calls,
                                                         const DeviceInfo& info) {
  std::shared_ptr<HipDevice> made(new HipDevice(std::move(calls), info));
  size_t free = 0;
  size_t total = 0;
  // Uses the device, which takes some of its memory where nobody else in the process has.
  auto opened =
      made->Run("opening the GPU", [&] { return made->calls()->mem_get_info(&free, &total); });
  if (!opened && opened.error().code == ErrorCode::kResourceExhausted) {
    opened.error().hint = kLeaveMemoryFree;
  }
  RETURN_IF_ERROR(std::move(opened));
  int threads = 0;
  RETURN_IF_ERROR(
      made->Call(&hip::Functions::device_get_attribute, &threads, hip::kWarpSize, info.ordinal));
  if (threads <= 0) {
    return Fail(ErrorCode::kDeviceError,
                "GPU " + info.uuid + " has warps of " + std::to_string(threads) + " threads");
  }
  made->warp_threads_ = static_cast<unsigned>(threads);
  return made;
}

Status HipApi::LoadCopyKernel(const HipDevice& device, hip::Module* kernels) {
  const hip::Calls& calls = device.calls();
  // For the device that is current: no architecture is named.
  ASSIGN_OR_RETURN(
      const std::string code,
      CompileForCurrentDevice(calls, CopyKernelSource().data(), "copy_kernel.hip",
                              "-DGANTRY_WARP_THREADS=" + std::to_string(device.warp_threads())));
  return device.Check(&hip::Functions::module_load_data,
                      calls->module_load_data(kernels, code.data()));
}

}  // namespace gantry::gpu
