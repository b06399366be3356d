// One AMD GPU as this process uses it. Thread-safe.
#pragma once

#include <memory>
#include <utility>

#include "lib/gpu/hip/hip_calls.h"
#include "lib/gpu/shared/gpu_driver.h"
#include "lib/gpu/shared/vendor_device.h"

namespace gantry::gpu {

// Makes a device current for a scope; the caller's own is current again afterwards. Meanwhile no
// call of this thread disturbs a graph that the workload captures: it is none of the graph's.
class HipCurrent {
 public:
  HipCurrent(const hip::Calls& calls, int ordinal);
  HipCurrent(const HipCurrent&) = delete;
  HipCurrent& operator=(const HipCurrent&) = delete;
  ~HipCurrent();
  hip::Result result() const { return result_; }
  Status status() const { return calls_.Check(result_, "hipSetDevice"); }

 private:
  const hip::Calls& calls_;
  const hip::LastErrorKept kept_;
  const int ordinal_;
  int before_ = 0;
  hip::Result result_ = hip::kSuccess;
  int capture_mode_ = hip::kCaptureModeRelaxed;  // then the thread's own
};

// An address as HIP takes it.
inline void* PointerOf(DeviceAddress address) { return NativeOf<void*>(address); }

class HipDevice;

// The parameter of the templates in lib/gpu/shared: what differs from other vendors.
struct HipApi {
  using Calls = hip::Calls;
  using Functions = hip::Functions;
  using Feature = hip::Feature;
  using Address = void*;
  using MemHandle = hip::MemHandle;
  using Place = int;  // an ordinal
  using Current = HipCurrent;
  using Device = HipDevice;

  static int DeviceOf(const Calls& /*calls*/, int ordinal, int* device) {
    *device = ordinal;
    return abi::kSuccess;
  }
  static constexpr char kVendor[] = "amd";
  static constexpr char kLibraryIs[] = "runtime";
  static constexpr char kLink[] = "XGMI";
  static constexpr SharingRules kSharing = {.one_attach_at_a_time = true,
                                            .handles_stay_in_pod = true};
  static unsigned IpcFlags(const Calls& calls) {
    return hip::LazyEnablePeerAccessOf(calls.version());
  }
  static const char* WhyNotOpened(int result);  // a handle of another process

  static Status LoadCopyKernel(const HipDevice& device, hip::Module* kernels);
  static Status CreatePiece(const HipDevice& device, int owner, uint64_t bytes, MemHandle* piece);
  static Status ImportPiece(const HipDevice& device, const PieceFd& piece, MemHandle* handle);

  static Status Copy(const HipDevice& device, DeviceAddress to, DeviceAddress from, uint64_t bytes,
                     hip::Stream stream);
  static Status CopyBatch(const HipDevice& device, Address* to, Address* from, size_t* bytes,
                          size_t count, hip::Stream stream);
  static Status CopyRows(const HipDevice& device, const RowCopy& rows, hip::Stream stream);

  static constexpr char kWritesNo[] =
      "values in the order of its streams (hipDeviceAttributeCanUseStreamWaitValue is 0)";
  static Status CanWriteInStreams(const HipDevice& device, int* can);

  // The runtime sees by the addresses which side the host's memory is of.
  static constexpr char kCopyFromHost[] = "hipMemcpyAsync";
  static constexpr char kCopyToHost[] = "hipMemcpyAsync";
  static int CopyFromHost(const Calls& calls, DeviceAddress to, const void* from, uint64_t bytes,
                          hip::Stream stream) {
    return calls->memcpy_async(PointerOf(to), from, bytes, hip::kMemcpyDefault, stream);
  }
  static int CopyToHost(const Calls& calls, void* to, DeviceAddress from, uint64_t bytes,
                        hip::Stream stream) {
    return calls->memcpy_async(to, PointerOf(from), bytes, hip::kMemcpyDefault, stream);
  }
};

class HipDevice : public VendorDevice<HipApi> {
 public:
  static Result<std::shared_ptr<const HipDevice>> Open(std::shared_ptr<const hip::Calls> calls,
                                                       const DeviceInfo& info);
  ~HipDevice() { UnloadKernels(); }

  int device() const { return info().ordinal; }  // as HIP's functions take it
  // HIP gives contexts no numbers: one that was reset looks like the one after it.
  static bool WasReset() { return false; }
  static Status CheckNotReset() { return {}; }
  unsigned warp_threads() const { return warp_threads_; }

 private:
  HipDevice(std::shared_ptr<const hip::Calls> calls, const DeviceInfo& info)
      : VendorDevice(std::move(calls), info, info.ordinal) {}

  unsigned warp_threads_ = 0;  // constant after Open
};

}  // namespace gantry::gpu
