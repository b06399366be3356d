#include "lib/gpu/hip/hip_host_copies.h"

namespace gantry::gpu {

HipHostCopies::~HipHostCopies() {
  const MutexLock lock(mutex_);
  if (stream_ == nullptr) return;
  const HipCurrent current(device_->calls(), device_->ordinal());
  if (current.status()) device_->calls()->stream_destroy(stream_);
}

Status HipHostCopies::Copy(void* to, const void* from, uint64_t bytes) {
  const hip::Calls& calls = device_->calls();
  const HipCurrent current(calls, device_->ordinal());
  RETURN_IF_ERROR(current.status());
  const MutexLock lock(mutex_);
  if (stream_ == nullptr) {
    RETURN_IF_ERROR(calls.Check(calls->stream_create(&stream_, hip::kStreamNonBlocking),
                                "hipStreamCreateWithFlags"));
  }
  // Of which side the host's memory is the runtime sees by the addresses.
  const hip::Result copied = calls->memcpy_async(to, from, bytes, hip::kMemcpyDefault, stream_);
  const hip::Result done = calls->stream_synchronize(stream_);
  return calls.Check(copied == hip::kSuccess ? done : copied, "hipMemcpyAsync");
}

Status HipHostCopies::CopyFromHost(DeviceAddress to, const void* from, uint64_t bytes) {
  return Copy(PointerOf(to), from, bytes);
}

Status HipHostCopies::CopyToHost(void* to, DeviceAddress from, uint64_t bytes) {
  return Copy(to, PointerOf(from), bytes);
}

}  // namespace gantry::gpu
