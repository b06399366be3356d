#include "lib/gpu/cuda/cuda_host_copies.h"

namespace gantry::gpu {

CudaHostCopies::~CudaHostCopies() {
  const MutexLock lock(mutex_);
  if (stream_ == nullptr) return;
  const CudaCurrent current(primary_->calls(), primary_->context());
  if (current.status()) primary_->calls()->stream_destroy(stream_);
}

template <typename Copy>
Status CudaHostCopies::WithStream(const char* what, Copy copy) {
  const cuda::Calls& calls = primary_->calls();
  const CudaCurrent current(calls, primary_->context());
  RETURN_IF_ERROR(current.status());
  const MutexLock lock(mutex_);
  if (stream_ == nullptr) {
    RETURN_IF_ERROR(calls.Check(calls->stream_create(&stream_, cuda::kStreamNonBlocking), what));
  }
  // From pageable memory bytes may be on their way only when the copy's call returns.
  const cuda::Result copied = copy(stream_);
  const cuda::Result done = calls->stream_synchronize(stream_);
  return calls.Check(copied == cuda::kSuccess ? done : copied, what);
}

Status CudaHostCopies::CopyFromHost(DeviceAddress to, const void* from, uint64_t bytes) {
  return WithStream("cuMemcpyHtoDAsync", [&](cuda::Stream stream) {
    return primary_->calls()->memcpy_htod_async(NumberOf(to), from, bytes, stream);
  });
}

Status CudaHostCopies::CopyToHost(void* to, DeviceAddress from, uint64_t bytes) {
  return WithStream("cuMemcpyDtoHAsync", [&](cuda::Stream stream) {
    return primary_->calls()->memcpy_dtoh_async(to, NumberOf(from), bytes, stream);
  });
}

}  // namespace gantry::gpu
