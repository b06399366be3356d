#include "sidecar/worker/process/staging_buffer.h"

#include <algorithm>
#include <cstring>

#include "sidecar/worker/process/gpu_wait.h"
#include "sidecar/worker/process/stream_copy.h"

namespace gantry::worker {
namespace {

constexpr size_t kStagingBytes = StagingBuffer::kSlices * StagingBuffer::kSliceBytes;
constexpr uint64_t kCacheLineBytes = 64;  // blocks begin at lines of the cache

void PlainCopy(std::byte* to, const std::byte* from, size_t bytes) { std::memcpy(to, from, bytes); }

}  // namespace

Result<std::unique_ptr<StagingBuffer>> StagingBuffer::Create(gpu::GpuContext& context) {
  std::unique_ptr<StagingBuffer> stage(new StagingBuffer());
  ASSIGN_OR_RETURN(stage->pages_,
                   PinnedPages::Create(context, kStagingBytes, "bytes between a GPU and the host"));
  for (uint64_t slice = 0; slice < kSlices; ++slice) {
    ASSIGN_OR_RETURN(std::unique_ptr<gpu::GpuEvent> mark, context.NewEvent());
    stage->slices_.push_back({std::move(mark), {}});
  }
  return stage;
}

gpu::DeviceAddress StagingBuffer::Take(uint64_t bytes) {
  const gpu::DeviceAddress where = pages_->on_gpu() + (number_ % kSlices * kSliceBytes + used_);
  used_ = std::min(kSliceBytes,
                   (used_ + bytes + kCacheLineBytes - 1) / kCacheLineBytes * kCacheLineBytes);
  return where;
}

gpu::DeviceAddress StagingBuffer::Fill(const std::byte* from, uint64_t bytes) {
  std::memcpy(open() + used_, from, bytes);
  return Take(bytes);
}

gpu::DeviceAddress StagingBuffer::Expect(std::byte* to, uint64_t bytes, bool streamed) {
  slices_[number_ % kSlices].arrivals.push_back({to, used_, bytes, streamed});
  return Take(bytes);
}

Result<uint64_t> StagingBuffer::Close(gpu::GpuStream& stream) {
  if (used_ == 0) return number_ - 1;
  RETURN_IF_ERROR(stream.Record(*slices_[number_ % kSlices].mark));
  const uint64_t closed = number_++;
  used_ = 0;
  if (number_ > kSlices) RETURN_IF_ERROR(Retire(number_ - kSlices));
  return closed;
}

void StagingBuffer::Forget() {
  slices_[number_ % kSlices].arrivals.clear();
  used_ = 0;
}

Status StagingBuffer::Retire(uint64_t number) {
  for (; retired_ < number; ++retired_) {
    const uint64_t index = (retired_ + 1) % kSlices;
    Slice& slice = slices_[index];
    RETURN_IF_ERROR(AwaitGpu(*slice.mark));
    for (const Arrival& arrival : slice.arrivals) {
      const std::byte* const from = pages_->data() + index * kSliceBytes + arrival.offset;
      (arrival.streamed ? StreamBytes : PlainCopy)(arrival.to, from, arrival.bytes);
    }
    FenceStreams();
    slice.arrivals.clear();
  }
  return {};
}

}  // namespace gantry::worker
