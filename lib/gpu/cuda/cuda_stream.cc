#include "lib/gpu/cuda/cuda_primary.h"

namespace gantry::gpu {
namespace {

// Unified: the memory may be another device's, or another process's.
cuda::Memcpy2dSide SideOf(DeviceAddress address, uint64_t pitch) {
  cuda::Memcpy2dSide side = {};
  side.memory_type = cuda::kMemoryTypeUnified;
  side.device = NumberOf(address);
  side.pitch = pitch;
  return side;
}

}  // namespace

Status CudaApi::Copy(const CudaPrimary& primary, DeviceAddress to, DeviceAddress from,
                     uint64_t bytes, cuda::Stream stream) {
  return primary.Call(&Functions::memcpy_async, NumberOf(to), NumberOf(from), bytes, stream);
}

// Its signature changed with CUDA 13.
Status CudaApi::CopyBatch(const CudaPrimary& primary, Address* to, Address* from, size_t* bytes,
                          size_t count, cuda::Stream stream) {
  cuda::MemcpyAttributes attributes = {};
  attributes.source_access_order = cuda::kSourceAccessOrderStream;
  size_t first = 0;  // the attributes hold from the first item on
  const cuda::Calls& calls = primary.calls();
  return primary.Run("cuMemcpyBatchAsync", [&] {
    if (calls->memcpy_batch_13000 != nullptr) {
      return calls->memcpy_batch_13000(to, from, bytes, count, &attributes, &first, 1, stream);
    }
    size_t failed = 0;
    return calls->memcpy_batch_12080(to, from, bytes, count, &attributes, &first, 1, &failed,
                                     stream);
  });
}

Status CudaApi::CopyRows(const CudaPrimary& primary, const RowCopy& rows, cuda::Stream stream) {
  const cuda::Memcpy2d copy = {SideOf(rows.from, rows.from_pitch), SideOf(rows.to, rows.to_pitch),
                               rows.bytes, rows.count};
  return primary.Call(&Functions::memcpy_2d_async, &copy, stream);
}

}  // namespace gantry::gpu
