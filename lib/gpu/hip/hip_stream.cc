#include "lib/gpu/hip/hip_stream.h"

#include <string>

#include "lib/gpu/shared/copy_kernel.h"

namespace gantry::gpu {

static_assert(sizeof(CopyItem) == copy_kernel::kItemBytes);

// Events.

Result<std::unique_ptr<GpuEvent>> HipEvent::Create(std::shared_ptr<const HipDevice> device) {
  std::unique_ptr<HipEvent> made(new HipEvent(std::move(device)));
  const HipDevice& on = *made->device_;
  RETURN_IF_ERROR(on.Run("hipEventCreateWithFlags", [&] {
    return on.calls()->event_create(&made->event_, hip::kEventDisableTiming);
  }));
  return made;
}

HipEvent::~HipEvent() {
  if (event_ == nullptr) return;
  static_cast<void>(device_->Run("", [&] { return device_->calls()->event_destroy(event_); }));
}

Result<bool> HipEvent::IsReached() {
  const HipCurrent current(device_->calls(), device_->ordinal());
  RETURN_IF_ERROR(current.status());
  const hip::Result result = device_->calls()->event_query(event_);
  if (result == hip::kNotReady) return false;
  RETURN_IF_ERROR(device_->calls().Check(result, "the work before an event"));
  return true;
}

Status HipEvent::Wait() {
  return device_->Run("the work before an event",
                      [&] { return device_->calls()->event_synchronize(event_); });
}

// Streams.

Result<std::unique_ptr<GpuStream>> HipStream::Create(std::shared_ptr<const HipDevice> device) {
  std::unique_ptr<HipStream> made(new HipStream(std::move(device)));
  const HipDevice& on = *made->device_;
  RETURN_IF_ERROR(on.Run("hipStreamCreateWithFlags", [&] {
    return on.calls()->stream_create(&made->stream_, hip::kStreamNonBlocking);
  }));
  return made;
}

HipStream::~HipStream() {
  if (stream_ == nullptr) return;
  static_cast<void>(device_->Run("", [&] {
    device_->calls()->stream_synchronize(stream_);
    return device_->calls()->stream_destroy(stream_);
  }));
}

Status HipStream::Copy(DeviceAddress to, DeviceAddress from, uint64_t bytes) {
  return device_->Run("hipMemcpyAsync", [&] {
    return device_->calls()->memcpy_async(PointerOf(to), PointerOf(from), bytes,
                                          hip::kMemcpyDefault, stream_);
  });
}

Status HipStream::CopyBatch(std::span<const CopyItem> items) {
  const hip::Calls& calls = device_->calls();
  RETURN_IF_ERROR(calls.Require(hip::Feature::kBatchCopy));
  if (items.empty()) return {};
  to_.resize(items.size());
  from_.resize(items.size());
  bytes_.resize(items.size());
  for (size_t i = 0; i < items.size(); ++i) {
    to_[i] = PointerOf(items[i].to);
    from_[i] = PointerOf(items[i].from);
    bytes_[i] = items[i].bytes;
  }
  size_t failed = 0;
  return device_->Run("hipMemcpyBatchAsync", [&] {
    return calls->memcpy_batch_async(to_.data(), from_.data(), bytes_.data(), items.size(), nullptr,
                                     nullptr, 0, &failed, stream_);
  });
}

Status HipStream::CopyRows(const RowCopy& rows) {
  RETURN_IF_ERROR(device_->calls().Require(hip::Feature::kRowCopy));
  RETURN_IF_ERROR(CheckRows(rows));
  return device_->Run("hipMemcpy2DAsync", [&] {
    return device_->calls()->memcpy_2d_async(PointerOf(rows.to), rows.to_pitch,
                                             PointerOf(rows.from), rows.from_pitch, rows.bytes,
                                             rows.count, hip::kMemcpyDefault, stream_);
  });
}

Status HipStream::CopyByKernel(DeviceAddress items, uint32_t count, uint64_t longest) {
  if (count == 0) return {};
  if (longest == 0) return Fail(ErrorCode::kInvalidArgument, "the longest item has no bytes");
  const hip::Function kernel = device_->copy_kernel();
  if (kernel == nullptr) return Fail(ErrorCode::kInternal, "CopyByKernel before LoadKernels");
  const unsigned blocks =
      copy_kernel::BlocksFor(count, longest, static_cast<unsigned>(device_->info().multiprocessors),
                             copy_kernel::kBlockThreads / device_->warp_threads());
  uint64_t list = NumberOf(items);
  void* arguments[] = {&list, &count, &longest};  // taken by the call
  return device_->Run("hipModuleLaunchKernel", [&] {
    return device_->calls()->launch_kernel(kernel, blocks, 1, 1, copy_kernel::kBlockThreads, 1, 1,
                                           0, stream_, arguments, nullptr);
  });
}

Status HipStream::Fill(DeviceAddress to, uint8_t value, uint64_t bytes) {
  return device_->Run("hipMemsetAsync", [&] {
    return device_->calls()->memset_async(PointerOf(to), value, bytes, stream_);
  });
}

Status HipStream::Record(GpuEvent& event) {
  return device_->Run("hipEventRecord", [&] {
    return device_->calls()->event_record(static_cast<HipEvent&>(event).event(), stream_);
  });
}

Status HipStream::Synchronize() {
  return device_->Run("the work of a stream",
                      [&] { return device_->calls()->stream_synchronize(stream_); });
}

}  // namespace gantry::gpu
