// Host memory that a workload pins for its device, on every driver: also on those that write
// nothing in the order of streams.
#include "tests/contracts/gpu_pin_contract.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "lib/base/unique_fd.h"

namespace gantry::testing {

void GpuPinContract::SetUp() {
  GpuDriverContract::SetUp();
  before_ = allocations_->Current();
  const UniqueFd file(::memfd_create("counters", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(file.get(), kPage), 0);
  void* const mapped = ::mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  ASSERT_NE(mapped, MAP_FAILED);
  page_ = static_cast<uint64_t*>(mapped);
  auto device = driver_->OpenWorkloadDevice(0);
  ASSERT_OK(device);
  device_ = *std::move(device);
  auto pinned = device_->Pin(page_, kPage);
  ASSERT_OK(pinned);
  pinned_ = *std::move(pinned);
}

void GpuPinContract::TearDown() {
  pinned_.reset();
  if (page_ != nullptr) ::munmap(page_, kPage);
  GpuDriverContract::TearDown();
}

namespace {

TEST_F(GpuPinContract, PinsAreOnceAndEndWithUnpin) {
  const auto host = DeviceAddress{reinterpret_cast<uint64_t>(page_)};
  EXPECT_EQ(pinned_->range().size, kPage);
  EXPECT_EQ(Resolve(host).origin, MemoryOrigin::kPinned);
  const auto again = device_->Pin(page_, kPage);
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, ErrorCode::kConflict) << again.error().message;
  EXPECT_OK(pinned_->Unpin());
  EXPECT_OK(pinned_->Unpin());
  EXPECT_EQ(Resolve(host).origin, MemoryOrigin::kUnknown);
  auto anew = device_->Pin(page_, kPage);
  ASSERT_OK(anew);
  anew->reset();  // unpins
  EXPECT_EQ(Resolve(host).origin, MemoryOrigin::kUnknown);
  for (const auto& [data, bytes] : {std::pair<void*, uint64_t>{nullptr, kPage}, {page_, 0}}) {
    const auto nothing = device_->Pin(data, bytes);
    ASSERT_FALSE(nothing);
    EXPECT_EQ(nothing.error().code, ErrorCode::kInvalidArgument);
  }
}

TEST_F(GpuPinContract, TheDeviceReadsAndWritesPinnedMemoryAtItsOwnAddress) {
  const AddressRange memory = Make(MemoryOrigin::kDevice, kPage);
  std::fill_n(page_, kPage / 8, 0x1122334455667788);
  ASSERT_OK(stream_->Copy(memory.base, pinned_->range().base, kPage));
  ASSERT_OK(stream_->Fill(PlaceOf(1), 0x5a, 8));
  ASSERT_OK(stream_->Synchronize());
  const std::vector<uint8_t> read = Read(memory.base, kPage);
  EXPECT_TRUE(std::equal(read.begin(), read.begin() + 8, reinterpret_cast<uint8_t*>(page_)));
  EXPECT_EQ(read.back(), 0x11);
  EXPECT_EQ(Counter(0), 0x1122334455667788U);
  EXPECT_EQ(Counter(1), 0x5a5a5a5a5a5a5a5aU);
  EXPECT_EQ(Counter(2), 0x1122334455667788U);
}

TEST_F(GpuPinContract, WhatIsCurrentForTheCallerStaysSo) {
  EXPECT_EQ(allocations_->Current(), before_);
  EXPECT_OK(pinned_->Unpin());
  EXPECT_EQ(allocations_->Current(), before_);
  EXPECT_OK(device_->Pin(page_, kPage));
  EXPECT_EQ(allocations_->Current(), before_);
}

TEST_F(GpuPinContract, ADeviceThatThisProcessDoesNotSeeIsRefused) {
  for (const int ordinal : {-1, last_device() + 1}) {
    const auto device = driver_->OpenWorkloadDevice(ordinal);
    ASSERT_FALSE(device);
    EXPECT_EQ(device.error().code, ErrorCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace gantry::testing
