#include "lib/gpu/hip/hip_workload_device.h"

#include <string>

#include "lib/base/mutex.h"

namespace gantry::gpu {
namespace {

constexpr char kSynchronise[] =
    "synchronise the stream instead, and then submit the transfer without a fence or signal from "
    "the host";

hip::Stream Of(StreamHandle stream) {
  return reinterpret_cast<hip::Stream>(static_cast<uint64_t>(stream));
}

// Of the calling thread's current device; HIP names them by these numbers.
bool IsDefault(StreamHandle stream) {
  constexpr uint64_t kPerThread = 2;  // 0 and 1 are the legacy one
  return static_cast<uint64_t>(stream) <= kPerThread;
}

class HipPinnedMemory final : public GpuPinnedMemory {
 public:
  HipPinnedMemory(std::shared_ptr<const HipDevice> device, void* data, uint64_t bytes)
      : device_(std::move(device)), data_(data), bytes_(bytes) {}
  HipPinnedMemory(const HipPinnedMemory&) = delete;
  HipPinnedMemory& operator=(const HipPinnedMemory&) = delete;
  ~HipPinnedMemory() override {
    MutexLock lock(mutex_);
    static_cast<void>(Release());
  }

  // Once, before anything else.
  Status Register() {
    const hip::Calls& calls = device_->calls();
    hip::Result result = hip::kSuccess;
    Status registered = device_->Run("hipHostRegister", [&] {
      return result = calls->mem_host_register(
                 data_, bytes_, hip::kHostRegisterPortable | hip::kHostRegisterMapped);
    });
    if (!registered && result == hip::kNotSupported) {
      registered.error().code = ErrorCode::kPathUnavailable;
      registered.error().hint =
          "memory of the host cannot be pinned here: use it without; where a fence was to be "
          "signalled, " +
          std::string(kSynchronise);
    }
    if (!registered && result == hip::kHostMemoryAlreadyRegistered) {
      registered.error().code = ErrorCode::kConflict;
      registered.error().hint =
          "this process has pinned the memory already: one of the two is enough";
    }
    RETURN_IF_ERROR(std::move(registered));
    MutexLock lock(mutex_);
    pinned_ = true;
    // Not the host's own address: that is another one wherever the device translates.
    void* address = nullptr;
    RETURN_IF_ERROR(device_->Run("hipHostGetDevicePointer", [&] {
      return calls->mem_host_get_device_pointer(&address, data_, 0);
    }));
    if (address == nullptr) {
      return Fail(
          ErrorCode::kDeviceError,
          "the runtime has pinned memory without an address for GPU " + device_->info().uuid);
    }
    on_device_ = {AddressOf(address), bytes_};
    return {};
  }

  AddressRange range() const override { return on_device_; }

  Status Unpin() override {
    MutexLock lock(mutex_);
    const hip::Result result = Release();
    if (result == hip::kSuccess) return {};
    Status failed =
        device_->calls().Check(result, "hipHostUnregister on GPU " + device_->info().uuid);
    failed.error().hint =
        "the memory is still pinned: keep it mapped, and unpin it again when the GPU is at rest";
    return failed;
  }

  bool UnpinQuietly() noexcept override {
    MutexLock lock(mutex_);
    return Release() == hip::kSuccess;
  }

  void Abandon() noexcept override {
    MutexLock lock(mutex_);
    pinned_ = false;
  }

  // HIP gives contexts no numbers: one that was reset looks like the one after it.
  bool IsGone() const noexcept override { return false; }

 private:
  hip::Result Release() REQUIRES(mutex_) {
    if (!pinned_) return hip::kSuccess;
    const HipCurrent current(device_->calls(), device_->device());
    hip::Result result = current.result();
    if (result == hip::kSuccess) result = device_->calls()->mem_host_unregister(data_);
    // It went with a reset of the device, or with the runtime at the end of the process.
    const bool gone = result == hip::kContextIsDestroyed || result == hip::kInvalidContext ||
                      result == hip::kDeinitialized || result == hip::kHostMemoryNotRegistered;
    pinned_ = result != hip::kSuccess && !gone;
    return pinned_ ? result : hip::kSuccess;
  }

  const std::shared_ptr<const HipDevice> device_;
  void* const data_;
  const uint64_t bytes_;
  AddressRange on_device_;  // constant after Register
  Mutex mutex_;
  bool pinned_ GUARDED_BY(mutex_) = false;
};

}  // namespace

Result<std::unique_ptr<GpuPinnedMemory>> HipWorkloadDevice::Pin(void* data, uint64_t bytes) {
  RETURN_IF_ERROR(device_->calls().Require(hip::Feature::kHostRegister));
  if (data == nullptr || bytes == 0) {
    return Fail(ErrorCode::kInvalidArgument, "no memory to pin");
  }
  auto pinned = std::make_unique<HipPinnedMemory>(device_, data, bytes);
  RETURN_IF_ERROR(
      pinned->Register());  // unpinned with the object where only its address is missing
  return pinned;
}

Status HipWorkloadDevice::CheckStreamWrites() const {
  const hip::Calls& calls = device_->calls();
  if (Status required = calls.Require(hip::Feature::kStreamWrites); !required) {
    required.error().hint += "; until then " + std::string(kSynchronise);
    return required;
  }
  int can = 0;
  RETURN_IF_ERROR(device_->Run("hipDeviceGetAttribute", [&] {
    return calls->device_get_attribute(&can, hip::kCanUseStreamWaitValue, device_->device());
  }));
  if (can != 0) return {};
  return Fail(ErrorCode::kPathUnavailable,
              "GPU " + device_->info().uuid +
                  " writes no values in the order of its streams "
                  "(hipDeviceAttributeCanUseStreamWaitValue is 0)",
              kSynchronise);
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
      calls.Check(calls->stream_get_device(Of(stream), &ordinal), "hipStreamGetDevice"));
  return ordinal;
}

Result<uint64_t> HipWorkloadDevice::IdOf(StreamHandle stream) const {
  const hip::Calls& calls = device_->calls();
  RETURN_IF_ERROR(calls.Require(hip::Feature::kStreamWrites));
  {
    // First: the other calls would spoil a capture. The legacy stream cannot be used at all while a
    // stream that waits for it is captured.
    const hip::LastErrorKept kept(calls);
    int capturing = hip::kNotCaptured;
    const hip::Result asked = calls->stream_is_capturing(Of(stream), &capturing);
    if (asked == hip::kStreamCaptureImplicit || capturing != hip::kNotCaptured) {
      return Fail(ErrorCode::kConflict,
                  "the stream is being captured: a graph would write the same value at each launch",
                  "signal after the graph was launched, in the stream in which it was", "stream");
    }
    RETURN_IF_ERROR(calls.Check(asked, "hipStreamIsCapturing"));
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
  unsigned long long id = 0;
  RETURN_IF_ERROR(calls.Check(calls->stream_get_id(Of(stream), &id), "hipStreamGetId"));
  return id;
}

Status HipWorkloadDevice::WriteWhenDone(StreamHandle stream, DeviceAddress to, uint64_t value) {
  const hip::Calls& calls = device_->calls();
  RETURN_IF_ERROR(calls.Require(hip::Feature::kStreamWrites));
  if (NumberOf(to) == 0 || NumberOf(to) % sizeof(value) != 0) {
    return Fail(ErrorCode::kInvalidArgument, "no place for a value of 8 bytes on the device");
  }
  hip::Result result = hip::kSuccess;
  Status submitted = device_->Run("hipStreamWriteValue64", [&] {
    return result = calls->stream_write_value_64(Of(stream), PointerOf(to), value, 0);
  });
  if (!submitted && result == hip::kNotSupported) {
    submitted.error().code = ErrorCode::kPathUnavailable;
    submitted.error().hint = kSynchronise;
  }
  return submitted;
}

}  // namespace gantry::gpu
