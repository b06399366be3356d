#include "lib/gpu/cuda/cuda_workload_device.h"

#include <string>

#include "lib/base/mutex.h"
#include "lib/gpu/cuda/cuda_pointers.h"

namespace gantry::gpu {
namespace {

constexpr char kSynchronise[] =
    "synchronise the stream instead, and then submit the transfer without a fence or signal from "
    "the host";

cuda::Stream Of(StreamHandle stream) {
  return reinterpret_cast<cuda::Stream>(static_cast<uint64_t>(stream));
}

// Of the calling thread's current context; CUDA names them by these numbers.
bool IsDefault(StreamHandle stream) {
  constexpr uint64_t kPerThread = 2;  // 0 and 1 are the legacy one
  return static_cast<uint64_t>(stream) <= kPerThread;
}

class CudaPinnedMemory final : public GpuPinnedMemory {
 public:
  CudaPinnedMemory(std::shared_ptr<const CudaPrimary> primary, void* data, uint64_t bytes)
      : primary_(std::move(primary)), data_(data), bytes_(bytes) {}
  CudaPinnedMemory(const CudaPinnedMemory&) = delete;
  CudaPinnedMemory& operator=(const CudaPinnedMemory&) = delete;
  ~CudaPinnedMemory() override {
    MutexLock lock(mutex_);
    static_cast<void>(Release());
  }

  // Once, before anything else.
  Status Register() {
    const cuda::Calls& calls = primary_->calls();
    cuda::Result result = cuda::kSuccess;
    Status registered = primary_->Run("cuMemHostRegister", [&] {
      return result = calls->mem_host_register(
                 data_, bytes_, cuda::kHostRegisterPortable | cuda::kHostRegisterMapped);
    });
    if (!registered && result == cuda::kNotSupported) {
      registered.error().code = ErrorCode::kPathUnavailable;
      registered.error().hint =
          "memory of the host cannot be pinned here: use it without; where a fence was to be "
          "signalled, " +
          std::string(kSynchronise);
    }
    if (!registered && result == cuda::kHostMemoryAlreadyRegistered) {
      registered.error().code = ErrorCode::kConflict;
      registered.error().hint =
          "this process has pinned the memory already: one of the two is enough";
    }
    RETURN_IF_ERROR(std::move(registered));
    MutexLock lock(mutex_);
    pinned_ = true;
    cuda::DevicePtr address = 0;
    RETURN_IF_ERROR(primary_->Run("cuMemHostGetDevicePointer", [&] {
      return calls->mem_host_get_device_pointer(&address, data_, 0);
    }));
    if (address == 0) {
      return Fail(
          ErrorCode::kDeviceError,
          "the driver has pinned memory without an address for GPU " + primary_->info().uuid);
    }
    on_device_ = {DeviceAddress{address}, bytes_};
    return {};
  }

  AddressRange range() const override { return on_device_; }

  Status Unpin() override {
    MutexLock lock(mutex_);
    const cuda::Result result = Release();
    if (result == cuda::kSuccess) return {};
    Status failed =
        primary_->calls().Check(result, "cuMemHostUnregister on GPU " + primary_->info().uuid);
    failed.error().hint =
        "the memory is still pinned: keep it mapped, and unpin it again when the GPU is at rest";
    return failed;
  }

  bool UnpinQuietly() noexcept override {
    MutexLock lock(mutex_);
    return Release() == cuda::kSuccess;
  }

  void Abandon() noexcept override {
    MutexLock lock(mutex_);
    pinned_ = false;
  }

  bool IsGone() const noexcept override { return primary_->WasReset(); }

 private:
  cuda::Result Release() REQUIRES(mutex_) {
    if (!pinned_) return cuda::kSuccess;
    if (primary_->WasReset()) {  // a pin of the same memory would be somebody else's
      pinned_ = false;
      return cuda::kSuccess;
    }
    const CudaCurrent current(primary_->calls(), primary_->context());
    cuda::Result result = current.result();
    if (result == cuda::kSuccess) result = primary_->calls()->mem_host_unregister(data_);
    // It went with its context (cudaDeviceReset), or with the driver at the end of the process.
    const bool gone = result == cuda::kContextIsDestroyed || result == cuda::kInvalidContext ||
                      result == cuda::kDeinitialized || result == cuda::kHostMemoryNotRegistered;
    pinned_ = result != cuda::kSuccess && !gone;
    return pinned_ ? result : cuda::kSuccess;
  }

  const std::shared_ptr<const CudaPrimary> primary_;
  void* const data_;
  const uint64_t bytes_;
  AddressRange on_device_;  // constant after Register
  Mutex mutex_;
  bool pinned_ GUARDED_BY(mutex_) = false;
};

}  // namespace

Result<std::unique_ptr<GpuPinnedMemory>> CudaWorkloadDevice::Pin(void* data, uint64_t bytes) {
  RETURN_IF_ERROR(primary_->calls().Require(cuda::Feature::kHostRegister));
  RETURN_IF_ERROR(CheckNotReset());
  if (data == nullptr || bytes == 0) {
    return Fail(ErrorCode::kInvalidArgument, "no memory to pin");
  }
  auto pinned = std::make_unique<CudaPinnedMemory>(primary_, data, bytes);
  RETURN_IF_ERROR(
      pinned->Register());  // unpinned with the object where only its address is missing
  return pinned;
}

Status CudaWorkloadDevice::CheckStreamWrites() const {
  const cuda::Calls& calls = primary_->calls();
  if (Status required = calls.Require(cuda::Feature::kStreamWrites); !required) {
    required.error().hint += "; until then " + std::string(kSynchronise);
    return required;
  }
  int can = 0;
  const cuda::Result asked =
      calls->device_get_attribute(&can, cuda::kCanUse64BitStreamMemOps, primary_->device());
  // An invalid value: the driver is older than the attribute.
  if (asked != cuda::kInvalidValue) {
    RETURN_IF_ERROR(calls.Check(asked, "cuDeviceGetAttribute"));
  }
  if (can != 0) return {};
  return Fail(ErrorCode::kPathUnavailable,
              "GPU " + primary_->info().uuid +
                  " writes no 64-bit values in the order of its streams "
                  "(CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS is 0)",
              kSynchronise);
}

Status CudaWorkloadDevice::CheckNotReset() const {
  if (!primary_->WasReset()) return {};
  return Fail(ErrorCode::kDeviceError,
              "the context of GPU " + primary_->info().uuid +
                  " was reset (cudaDeviceReset), and with it all that was pinned there",
              "make a new timeline, and pin arenas anew");
}

// Default streams are of the caller's current context; without one, runtimes would take theirs.
Status CudaWorkloadDevice::CheckCurrent() const {
  const cuda::Calls& calls = primary_->calls();
  cuda::Context context = nullptr;
  RETURN_IF_ERROR(calls.Check(calls->ctx_get_current(&context), "cuCtxGetCurrent"));
  if (context == nullptr || context == primary_->context()) return {};
  cuda::Device device = 0;
  cuda::Uuid uuid = {};
  RETURN_IF_ERROR(calls.Check(calls->ctx_get_device(&device), "cuCtxGetDevice"));
  RETURN_IF_ERROR(calls.Check(calls->device_get_uuid(&uuid, device), "cuDeviceGetUuid"));
  const std::string& mine = primary_->info().uuid;
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
  const cuda::Calls& calls = primary_->calls();
  RETURN_IF_ERROR(calls.Require(cuda::Feature::kStreamWrites));
  RETURN_IF_ERROR(CheckNotReset());
  if (IsDefault(stream)) RETURN_IF_ERROR(CheckCurrent());
  const CudaCurrent current(calls, primary_->context());
  RETURN_IF_ERROR(current.status());
  int capturing = cuda::kNotCaptured;
  // First: the other calls would spoil a capture. The legacy stream cannot be used at all while a
  // stream that waits for it is captured.
  const cuda::Result asked = calls->stream_is_capturing(Of(stream), &capturing);
  if (asked == cuda::kStreamCaptureImplicit || capturing != cuda::kNotCaptured) {
    return Fail(ErrorCode::kConflict,
                "the stream is being captured: a graph would write the same value at each launch",
                "signal after the graph was launched, in the stream in which it was", "stream");
  }
  RETURN_IF_ERROR(calls.Check(asked, "cuStreamIsCapturing"));
  cuda::Context context = primary_->context();
  if (!IsDefault(stream)) {
    const cuda::Result told = calls->stream_get_ctx(Of(stream), &context);
    // Of a part of a device, which is a context of its own; or none that this one can name.
    const bool is_others = told == cuda::kNotSupported || told == cuda::kInvalidHandle;
    if (!is_others) RETURN_IF_ERROR(calls.Check(told, "cuStreamGetCtx"));
    if (is_others) context = nullptr;
  }
  if (context != primary_->context()) {
    return Fail(ErrorCode::kInvalidArgument,
                "the stream is none of GPU " + primary_->info().uuid +
                    " in the context that runtimes use (the primary one)",
                "name the GPU of the stream when the timeline is made; for a stream of another "
                "context record an event, have a stream of the primary one wait for it, and signal "
                "there",
                "stream");
  }
  unsigned long long id = 0;
  RETURN_IF_ERROR(calls.Check(calls->stream_get_id(Of(stream), &id), "cuStreamGetId"));
  return id;
}

Status CudaWorkloadDevice::WriteWhenDone(StreamHandle stream, DeviceAddress to, uint64_t value) {
  const cuda::Calls& calls = primary_->calls();
  RETURN_IF_ERROR(calls.Require(cuda::Feature::kStreamWrites));
  if (NumberOf(to) == 0 || NumberOf(to) % sizeof(value) != 0) {
    return Fail(ErrorCode::kInvalidArgument, "no place for a value of 8 bytes on the device");
  }
  RETURN_IF_ERROR(CheckNotReset());  // the place went with its context
  // By default a fence of the whole system precedes the write (CUDA driver API, "Stream Memory
  // Operations", cuStreamWriteValue64: without CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER).
  cuda::Result result = cuda::kSuccess;
  Status submitted = primary_->Run("cuStreamWriteValue64", [&] {
    return result = calls->stream_write_value_64(Of(stream), NumberOf(to), value,
                                                 cuda::kStreamWriteValueDefault);
  });
  if (!submitted && result == cuda::kNotSupported) {
    submitted.error().code = ErrorCode::kPathUnavailable;
    submitted.error().hint = kSynchronise;
  }
  return submitted;
}

}  // namespace gantry::gpu
