#include "lib/gpu/hip/hip_device.h"

#include <utility>

#include "lib/gpu/hip/hip_compiler.h"
#include "lib/gpu/shared/copy_kernel_source.h"

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
    opened.error().hint =
        "a process that uses a GPU takes some hundred MiB of its memory: leave them free, e.g. by "
        "a lower gpu_memory_utilization of the engine";
  }
  RETURN_IF_ERROR(std::move(opened));
  int threads = 0;
  RETURN_IF_ERROR(made->Run("hipDeviceGetAttribute", [&] {
    return made->calls()->device_get_attribute(&threads, hip::kWarpSize, info.ordinal);
  }));
  if (threads <= 0) {
    return Fail(ErrorCode::kDeviceError,
                "GPU " + info.uuid + " has warps of " + std::to_string(threads) + " threads");
  }
  made->warp_threads_ = static_cast<unsigned>(threads);
  return made;
}

HipDevice::~HipDevice() {
  const MutexLock lock(kernels_mutex_);
  if (kernels_ == nullptr) return;
  const HipCurrent current(*calls_, info_.ordinal);
  if (current.status()) (*calls_)->module_unload(kernels_);
}

Status HipDevice::LoadKernels() const {
  const hip::Calls& calls = *calls_;
  RETURN_IF_ERROR(calls.Require(hip::Feature::kKernels));
  const MutexLock lock(kernels_mutex_);
  if (copy_kernel_ != nullptr) return {};
  const HipCurrent current(calls, info_.ordinal);
  RETURN_IF_ERROR(current.status());
  if (kernels_ == nullptr) {
    // For the device that is current: no architecture is named.
    ASSIGN_OR_RETURN(
        const std::string code,
        CompileForCurrentDevice(calls, CopyKernelSource().data(), "copy_kernel.hip",
                                "-DGANTRY_WARP_THREADS=" + std::to_string(warp_threads_)));
    RETURN_IF_ERROR(calls.Check(calls->module_load_data(&kernels_, code.data()),
                                "hipModuleLoadData on GPU " + info_.uuid));
  }
  return calls.Check(calls->module_get_function(&copy_kernel_, kernels_, kCopyKernelName),
                     "hipModuleGetFunction on GPU " + info_.uuid);
}

hip::Function HipDevice::copy_kernel() const {
  const MutexLock lock(kernels_mutex_);
  return copy_kernel_;
}

}  // namespace gantry::gpu
