// Streams and events of one GPU, any vendor's. One thread at a time.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "lib/gpu/shared/copy_kernel.h"
#include "lib/gpu/shared/gpu_driver.h"
#include "lib/gpu/shared/vendor_device.h"

namespace gantry::gpu {

static_assert(sizeof(CopyItem) == copy_kernel::kItemBytes);

template <typename Api>
class VendorEvent final : public GpuEvent {
 public:
  using Device = typename Api::Device;
  using Functions = typename Api::Functions;

  static Result<std::unique_ptr<GpuEvent>> Create(std::shared_ptr<const Device> device) {
    std::unique_ptr<VendorEvent> made(new VendorEvent(std::move(device)));
    RETURN_IF_ERROR(
        made->device_->Call(&Functions::event_create, &made->event_, abi::kEventDisableTiming));
    return made;
  }
  VendorEvent(const VendorEvent&) = delete;
  VendorEvent& operator=(const VendorEvent&) = delete;
  ~VendorEvent() override {
    if (event_ != nullptr) static_cast<void>(device_->Call(&Functions::event_destroy, event_));
  }

  Result<bool> IsReached() override {
    const typename Api::Current current(device_->calls(), device_->place());
    RETURN_IF_ERROR(current.status());
    const int result = device_->calls()->event_query(event_);
    if (result == abi::kNotReady) return false;
    RETURN_IF_ERROR(device_->calls().Check(result, kWork));
    return true;
  }
  Status Wait() override {
    return device_->Run(kWork, [&] { return device_->calls()->event_synchronize(event_); });
  }
  abi::Event event() const { return event_; }

 private:
  static constexpr char kWork[] = "the work before an event";

  explicit VendorEvent(std::shared_ptr<const Device> device) : device_(std::move(device)) {}

  const std::shared_ptr<const Device> device_;
  abi::Event event_ = nullptr;
};

template <typename Api>
class VendorStream final : public GpuStream {
 public:
  using Device = typename Api::Device;
  using Functions = typename Api::Functions;
  using Address = typename Api::Address;

  static Result<std::unique_ptr<GpuStream>> Create(std::shared_ptr<const Device> device) {
    std::unique_ptr<VendorStream> made(new VendorStream(std::move(device)));
    RETURN_IF_ERROR(
        made->device_->Call(&Functions::stream_create, &made->stream_, abi::kStreamNonBlocking));
    return made;
  }
  VendorStream(const VendorStream&) = delete;
  VendorStream& operator=(const VendorStream&) = delete;
  ~VendorStream() override {
    if (stream_ == nullptr) return;
    static_cast<void>(device_->Run("", [&] {
      device_->calls()->stream_synchronize(stream_);
      return device_->calls()->stream_destroy(stream_);
    }));
  }

  Status Copy(DeviceAddress to, DeviceAddress from, uint64_t bytes) override {
    return Api::Copy(*device_, to, from, bytes, stream_);
  }

  Status CopyBatch(std::span<const CopyItem> items) override {
    RETURN_IF_ERROR(device_->calls().Require(Api::Feature::kBatchCopy));
    if (items.empty()) return {};
    to_.resize(items.size());
    from_.resize(items.size());
    bytes_.resize(items.size());
    for (size_t i = 0; i < items.size(); ++i) {
      to_[i] = NativeOf<Address>(items[i].to);
      from_[i] = NativeOf<Address>(items[i].from);
      bytes_[i] = items[i].bytes;
    }
    return Api::CopyBatch(*device_, to_.data(), from_.data(), bytes_.data(), items.size(), stream_);
  }

  Status CopyRows(const RowCopy& rows) override {
    RETURN_IF_ERROR(device_->calls().Require(Api::Feature::kRowCopy));
    RETURN_IF_ERROR(CheckRows(rows));
    return Api::CopyRows(*device_, rows, stream_);
  }

  Status CopyByKernel(DeviceAddress items, uint32_t count, uint64_t longest) override {
    if (count == 0) return {};
    if (longest == 0) return Fail(ErrorCode::kInvalidArgument, "the longest item has no bytes");
    const abi::Function kernel = device_->copy_kernel();
    if (kernel == nullptr) return Fail(ErrorCode::kInternal, "CopyByKernel before LoadKernels");
    const unsigned blocks = copy_kernel::BlocksFor(
        count, longest, static_cast<unsigned>(device_->info().multiprocessors),
        copy_kernel::kBlockThreads / device_->warp_threads());
    uint64_t list = NumberOf(items);
    void* arguments[] = {&list, &count, &longest};  // taken by the call
    return device_->Call(&Functions::launch_kernel, kernel, blocks, 1, 1,
                         copy_kernel::kBlockThreads, 1, 1, 0, stream_, arguments, nullptr);
  }

  Status Fill(DeviceAddress to, uint8_t value, uint64_t bytes) override {
    return device_->Call(&Functions::memset_async, NativeOf<Address>(to), value, bytes, stream_);
  }

  Status Record(GpuEvent& event) override {
    return device_->Call(&Functions::event_record, static_cast<VendorEvent<Api>&>(event).event(),
                         stream_);
  }

  Status Synchronize() override {
    return device_->Run("the work of a stream",
                        [&] { return device_->calls()->stream_synchronize(stream_); });
  }

 private:
  explicit VendorStream(std::shared_ptr<const Device> device) : device_(std::move(device)) {}

  const std::shared_ptr<const Device> device_;
  abi::Stream stream_ = nullptr;
  // The lists in which a batch is handed to the driver; kept, as batches follow each other.
  std::vector<Address> to_, from_;
  std::vector<size_t> bytes_;
};

}  // namespace gantry::gpu
