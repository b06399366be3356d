// A GPU as the workload's own code uses it: what is the same for every vendor. Thread-safe.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "lib/gpu/shared/gpu_workload_device.h"
#include "lib/gpu/shared/vendor_pinned_memory.h"

namespace gantry::gpu {

inline abi::Stream NativeOf(StreamHandle stream) {
  return reinterpret_cast<abi::Stream>(static_cast<uint64_t>(stream));
}

// A default stream belongs to what is current for the calling thread; it has one of these numbers.
inline bool IsDefault(StreamHandle stream) {
  constexpr uint64_t kPerThread = 2;  // 0 and 1 are the legacy one
  return static_cast<uint64_t>(stream) <= kPerThread;
}

template <typename Api>
class VendorWorkloadDevice : public GpuWorkloadDevice {
 public:
  using Device = typename Api::Device;
  using Functions = typename Api::Functions;

  explicit VendorWorkloadDevice(std::shared_ptr<const Device> device)
      : device_(std::move(device)) {}

  Result<std::unique_ptr<GpuPinnedMemory>> Pin(void* data, uint64_t bytes) override {
    RETURN_IF_ERROR(device_->calls().Require(Api::Feature::kHostRegister));
    RETURN_IF_ERROR(device_->CheckNotReset());
    if (data == nullptr || bytes == 0) {
      return Fail(ErrorCode::kInvalidArgument, "no memory to pin");
    }
    auto pinned = std::make_unique<VendorPinnedMemory<Api>>(device_, data, bytes);
    RETURN_IF_ERROR(
        pinned->Register());  // unpinned with the object where only its address is missing
    return pinned;
  }

  Status CheckStreamWrites() const override {
    if (Status required = device_->calls().Require(Api::Feature::kStreamWrites); !required) {
      required.error().hint += "; until then " + std::string(kSynchronise);
      return required;
    }
    int can = 0;
    RETURN_IF_ERROR(Api::CanWriteInStreams(*device_, &can));
    if (can != 0) return {};
    return Fail(ErrorCode::kPathUnavailable,
                "GPU " + device_->info().uuid + " writes no " + Api::kWritesNo, kSynchronise);
  }

  Status WriteWhenDone(StreamHandle stream, DeviceAddress to, uint64_t value) override {
    const auto& calls = device_->calls();
    RETURN_IF_ERROR(calls.Require(Api::Feature::kStreamWrites));
    if (NumberOf(to) == 0 || NumberOf(to) % sizeof(value) != 0) {
      return Fail(ErrorCode::kInvalidArgument, "no place for a value of 8 bytes on the device");
    }
    RETURN_IF_ERROR(device_->CheckNotReset());  // the place went with its context
    // By default a fence of the whole system precedes the write (CUDA driver API, "Stream Memory
    // Operations", cuStreamWriteValue64: without CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER).
    int result = abi::kSuccess;
    Status submitted = device_->Run(&Functions::stream_write_value_64, [&] {
      return result = calls->stream_write_value_64(NativeOf(stream),
                                                   gpu::NativeOf<typename Api::Address>(to), value,
                                                   abi::kStreamWriteValueDefault);
    });
    if (!submitted && result == abi::kNotSupported) {
      submitted.error().code = ErrorCode::kPathUnavailable;
      submitted.error().hint = kSynchronise;
    }
    return submitted;
  }

 protected:
  // Before other calls, which would spoil a capture. The legacy stream cannot be used at all while
  // a stream that waits for it is captured.
  Status CheckNotCaptured(StreamHandle stream) const {
    const auto& calls = device_->calls();
    int capturing = abi::kNotCaptured;
    const int asked = calls->stream_is_capturing(NativeOf(stream), &capturing);
    if (asked == abi::kStreamCaptureImplicit || capturing != abi::kNotCaptured) {
      return Fail(ErrorCode::kConflict,
                  "the stream is being captured: a graph would write the same value at each launch",
                  "signal after the graph was launched, in the stream in which it was", "stream");
    }
    if (asked == abi::kSuccess) return {};
    return calls.Check(asked, calls.NameOf(&Functions::stream_is_capturing));
  }

  // REQUIRES that the device is current.
  Result<uint64_t> NumberOfStream(StreamHandle stream) const {
    const auto& calls = device_->calls();
    unsigned long long id = 0;
    const int asked = calls->stream_get_id(NativeOf(stream), &id);
    if (asked == abi::kSuccess) return id;
    return Fail(calls.Check(asked, calls.NameOf(&Functions::stream_get_id)).error());
  }

  const std::shared_ptr<const Device> device_;
};

}  // namespace gantry::gpu
