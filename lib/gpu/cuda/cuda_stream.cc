#include "lib/gpu/cuda/cuda_stream.h"

#include <utility>

#include "lib/gpu/shared/copy_kernel.h"

namespace gantry::gpu {
namespace {

constexpr unsigned kWarpThreads = 32;
static_assert(sizeof(CopyItem) == copy_kernel::kItemBytes);

// Unified: the memory may be another device's, or another process's.
cuda::Memcpy2dSide SideOf(DeviceAddress address, uint64_t pitch) {
  cuda::Memcpy2dSide side = {};
  side.memory_type = cuda::kMemoryTypeUnified;
  side.device = NumberOf(address);
  side.pitch = pitch;
  return side;
}

}  // namespace

// Events.

Result<std::unique_ptr<GpuEvent>> CudaEvent::Create(std::shared_ptr<const CudaPrimary> primary) {
  std::unique_ptr<CudaEvent> made(new CudaEvent(std::move(primary)));
  const CudaPrimary& context = *made->primary_;
  RETURN_IF_ERROR(context.Run("cuEventCreate", [&] {
    return context.calls()->event_create(&made->event_, cuda::kEventDisableTiming);
  }));
  return made;
}

CudaEvent::~CudaEvent() {
  if (event_ == nullptr) return;
  static_cast<void>(primary_->Run("", [&] { return primary_->calls()->event_destroy(event_); }));
}

Result<bool> CudaEvent::IsReached() {
  const CudaCurrent current(primary_->calls(), primary_->context());
  RETURN_IF_ERROR(current.status());
  const cuda::Result result = primary_->calls()->event_query(event_);
  if (result == cuda::kNotReady) return false;
  RETURN_IF_ERROR(primary_->calls().Check(result, "the work before an event"));
  return true;
}

Status CudaEvent::Wait() {
  return primary_->Run("the work before an event",
                       [&] { return primary_->calls()->event_synchronize(event_); });
}

// Streams.

Result<std::unique_ptr<GpuStream>> CudaStream::Create(std::shared_ptr<const CudaPrimary> primary) {
  std::unique_ptr<CudaStream> made(new CudaStream(std::move(primary)));
  const CudaPrimary& context = *made->primary_;
  RETURN_IF_ERROR(context.Run("cuStreamCreate", [&] {
    return context.calls()->stream_create(&made->stream_, cuda::kStreamNonBlocking);
  }));
  return made;
}

CudaStream::~CudaStream() {
  if (stream_ == nullptr) return;
  static_cast<void>(primary_->Run("", [&] {
    primary_->calls()->stream_synchronize(stream_);
    return primary_->calls()->stream_destroy(stream_);
  }));
}

Status CudaStream::Copy(DeviceAddress to, DeviceAddress from, uint64_t bytes) {
  return primary_->Run("cuMemcpyAsync", [&] {
    return primary_->calls()->memcpy_async(NumberOf(to), NumberOf(from), bytes, stream_);
  });
}

Status CudaStream::CopyBatch(std::span<const CopyItem> items) {
  const cuda::Calls& calls = primary_->calls();
  RETURN_IF_ERROR(calls.Require(cuda::Feature::kBatchCopy));
  if (items.empty()) return {};
  to_.resize(items.size());
  from_.resize(items.size());
  bytes_.resize(items.size());
  for (size_t i = 0; i < items.size(); ++i) {
    to_[i] = NumberOf(items[i].to);
    from_[i] = NumberOf(items[i].from);
    bytes_[i] = items[i].bytes;
  }
  cuda::MemcpyAttributes attributes = {};
  attributes.source_access_order = cuda::kSourceAccessOrderStream;
  size_t first = 0;  // the attributes hold from the first item on
  return primary_->Run("cuMemcpyBatchAsync", [&] {
    if (calls->memcpy_batch_13000 != nullptr) {
      return calls->memcpy_batch_13000(to_.data(), from_.data(), bytes_.data(), items.size(),
                                       &attributes, &first, 1, stream_);
    }
    size_t failed = 0;
    return calls->memcpy_batch_12080(to_.data(), from_.data(), bytes_.data(), items.size(),
                                     &attributes, &first, 1, &failed, stream_);
  });
}

Status CudaStream::CopyRows(const RowCopy& rows) {
  RETURN_IF_ERROR(primary_->calls().Require(cuda::Feature::kRowCopy));
  RETURN_IF_ERROR(CheckRows(rows));
  const cuda::Memcpy2d copy = {SideOf(rows.from, rows.from_pitch), SideOf(rows.to, rows.to_pitch),
                               rows.bytes, rows.count};
  return primary_->Run("cuMemcpy2DAsync",
                       [&] { return primary_->calls()->memcpy_2d_async(&copy, stream_); });
}

Status CudaStream::CopyByKernel(DeviceAddress items, uint32_t count, uint64_t longest) {
  if (count == 0) return {};
  if (longest == 0) return Fail(ErrorCode::kInvalidArgument, "the longest item has no bytes");
  const cuda::Function kernel = primary_->copy_kernel();
  if (kernel == nullptr) return Fail(ErrorCode::kInternal, "CopyByKernel before LoadKernels");
  const unsigned blocks = copy_kernel::BlocksFor(
      count, longest, static_cast<unsigned>(primary_->info().multiprocessors),
      copy_kernel::kBlockThreads / kWarpThreads);
  cuda::DevicePtr list = NumberOf(items);
  void* arguments[] = {&list, &count, &longest};  // taken by the call
  return primary_->Run("cuLaunchKernel", [&] {
    return primary_->calls()->launch_kernel(kernel, blocks, 1, 1, copy_kernel::kBlockThreads, 1, 1,
                                            0, stream_, arguments, nullptr);
  });
}

Status CudaStream::Fill(DeviceAddress to, uint8_t value, uint64_t bytes) {
  return primary_->Run("cuMemsetD8Async", [&] {
    return primary_->calls()->memset_async(NumberOf(to), value, bytes, stream_);
  });
}

Status CudaStream::Record(GpuEvent& event) {
  return primary_->Run("cuEventRecord", [&] {
    return primary_->calls()->event_record(static_cast<CudaEvent&>(event).event(), stream_);
  });
}

Status CudaStream::Synchronize() {
  return primary_->Run("the work of a stream",
                       [&] { return primary_->calls()->stream_synchronize(stream_); });
}

}  // namespace gantry::gpu
