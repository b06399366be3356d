// An NVIDIA GPU's primary context: the one that the workload's runtime has, too. Thread-safe.
#pragma once

#include <memory>
#include <utility>

#include "lib/gpu/cuda/cuda_calls.h"
#include "lib/gpu/shared/gpu_driver.h"
#include "lib/gpu/shared/vendor_device.h"

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

class CudaPrimary;

// The parameter of the templates in lib/gpu/shared: what differs from other vendors.
struct CudaApi {
  using Calls = cuda::Calls;
  using Functions = cuda::Functions;
  using Feature = cuda::Feature;
  using Address = cuda::DevicePtr;
  using MemHandle = cuda::MemHandle;
  using Place = cuda::Context;
  using Current = CudaCurrent;
  using Device = CudaPrimary;

  static int DeviceOf(const Calls& calls, int ordinal, cuda::Device* device) {
    return calls->device_get(device, ordinal);
  }
  static constexpr char kVendor[] = "nvidia";
  static constexpr char kLibraryIs[] = "driver";
  static constexpr char kLink[] = "NVLink";
  static constexpr SharingRules kSharing = {};
  static unsigned IpcFlags(const Calls& /*calls*/) { return cuda::kIpcLazyEnablePeerAccess; }
  static const char* WhyNotOpened(int result);  // a handle of another process

  static Status LoadCopyKernel(const CudaPrimary& primary, cuda::Module* kernels);
  static Status CreatePiece(const CudaPrimary& primary, cuda::Device owner, uint64_t bytes,
                            MemHandle* piece);
  static Status ImportPiece(const CudaPrimary& primary, const PieceFd& piece, MemHandle* handle);

  static Status Copy(const CudaPrimary& primary, DeviceAddress to, DeviceAddress from,
                     uint64_t bytes, cuda::Stream stream);
  static Status CopyBatch(const CudaPrimary& primary, Address* to, Address* from, size_t* bytes,
                          size_t count, cuda::Stream stream);
  static Status CopyRows(const CudaPrimary& primary, const RowCopy& rows, cuda::Stream stream);

  static constexpr char kWritesNo[] =
      "64-bit values in the order of its streams "
      "(CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS is 0)";
  static Status CanWriteInStreams(const CudaPrimary& primary, int* can);

  static constexpr char kCopyFromHost[] = "cuMemcpyHtoDAsync";
  static constexpr char kCopyToHost[] = "cuMemcpyDtoHAsync";
  static int CopyFromHost(const Calls& calls, DeviceAddress to, const void* from, uint64_t bytes,
                          cuda::Stream stream) {
    return calls->memcpy_htod_async(NumberOf(to), from, bytes, stream);
  }
  static int CopyToHost(const Calls& calls, void* to, DeviceAddress from, uint64_t bytes,
                        cuda::Stream stream) {
    return calls->memcpy_dtoh_async(to, NumberOf(from), bytes, stream);
  }
};

// A retained primary context; the last of its streams, events and memory lets it go.
class CudaPrimary : public VendorDevice<CudaApi> {
 public:
  static Result<std::shared_ptr<const CudaPrimary>> Open(std::shared_ptr<const cuda::Calls> calls,
                                                         const DeviceInfo& device);
  ~CudaPrimary();

  cuda::Device device() const { return device_; }
  cuda::Context context() const { return place(); }
  static constexpr unsigned warp_threads() { return 32; }

  // Whether the program has ended the context since (cudaDeviceReset), and what was in it: its
  // handle may stand for another one by now. False where the driver cannot tell.
  bool WasReset() const;
  Status CheckNotReset() const;

 private:
  CudaPrimary(std::shared_ptr<const cuda::Calls> calls, const DeviceInfo& info, cuda::Device device,
              cuda::Context context, unsigned long long id)
      : VendorDevice(std::move(calls), info, context), device_(device), id_(id) {}

  const cuda::Device device_;
  const unsigned long long id_;  // of the context, which no other one gets; 0: not known
};

}  // namespace gantry::gpu
