// Streams, events, and what copies move.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <random>

#include "tests/contracts/gpu_driver_contract.h"

namespace gantry::testing {
namespace {

TEST_F(GpuDriverContract, WhatWasRecordedIsReachedWhenTheWorkBeforeItIsDone) {
  const AddressRange source = Make(MemoryOrigin::kDevice, 64 * kMiB);
  const AddressRange target = Make(MemoryOrigin::kDevice, 64 * kMiB);
  auto event = context_->NewEvent();
  ASSERT_OK(event);
  EXPECT_OK(stream_->Fill(source.base, 0xa5, source.size));
  for (int round = 0; round < 3; ++round) {  // an event is used again
    for (int i = 0; i < 20; ++i) EXPECT_OK(stream_->Copy(target.base, source.base, source.size));
    EXPECT_OK(stream_->Record(**event));
    const auto at_once = (*event)->IsReached();
    ASSERT_OK(at_once);
    EXPECT_FALSE(*at_once);
    EXPECT_OK((*event)->Wait());
    const auto later = (*event)->IsReached();
    ASSERT_OK(later);
    EXPECT_TRUE(*later);
  }
  EXPECT_EQ(Read(target.base + (source.size - kKiB), kKiB), std::vector<uint8_t>(kKiB, 0xa5));
}

TEST_F(GpuDriverContract, CopiesMoveTheirBytesAndNoOthers) {
  const AddressRange source = Make(MemoryOrigin::kDevice, kMiB);
  const AddressRange target = Make(MemoryOrigin::kDevice, kMiB);
  Write(source.base, Pattern(0, kMiB, 1));
  for (const uint64_t length : {uint64_t{1}, uint64_t{17}, uint64_t{4096}, 100 * kKiB + 3}) {
    Write(target.base, Pattern(0, kMiB, 2));
    EXPECT_OK(stream_->Copy(target.base + 12345, source.base + 777, length));
    EXPECT_OK(stream_->Synchronize());
    std::vector<uint8_t> wanted = Pattern(0, kMiB, 2);
    const std::vector<uint8_t> moved = Pattern(777, length, 1);
    std::copy(moved.begin(), moved.end(), wanted.begin() + 12345);
    EXPECT_EQ(Read(target.base, kMiB), wanted) << length;
  }
}

TEST_F(GpuDriverContract, ABatchOfBlocksMovesInAnyOrder) {
  if (Lacks("batch copy")) GTEST_SKIP() << "this driver copies no batches";
  constexpr uint64_t kBlock = 16 * kKiB;
  constexpr uint64_t kBlocks = 1024;
  auto other = driver_->OpenContext(last_device());
  ASSERT_OK(other);
  const AddressRange source = Make(MemoryOrigin::kDevice, kBlock * kBlocks);
  const auto target = (*other)->Allocate(kBlock * kBlocks);
  ASSERT_OK(target);
  const DeviceAddress to = (*target)->range().base;
  Write(source.base, Pattern(0, source.size, 1));
  std::vector<uint64_t> order(kBlocks);
  for (uint64_t i = 0; i < kBlocks; ++i) order[i] = i;
  std::shuffle(order.begin(), order.end(), std::mt19937(4));
  std::vector<gpu::CopyItem> items;
  for (uint64_t i = 0; i < kBlocks; ++i)
    items.push_back({to + order[i] * kBlock, source.base + i * kBlock, kBlock});
  EXPECT_OK(stream_->CopyBatch(items));
  items.clear();
  EXPECT_OK(stream_->CopyBatch(items));
  EXPECT_OK(stream_->Synchronize());
  std::vector<uint8_t> found(source.size);
  EXPECT_OK((*other)->CopyToHost(found.data(), to, found.size()));
  for (uint64_t i = 0; i < kBlocks; ++i) {
    const auto* block = found.data() + order[i] * kBlock;
    ASSERT_TRUE(std::equal(block, block + kBlock, Pattern(i * kBlock, kBlock, 1).begin())) << i;
  }
}

// Where row i of a copy of rows lies on one side.
struct Rows {
  uint64_t offset = 0;
  uint64_t pitch = 0;
};

TEST_F(GpuDriverContract, RowsMoveAndWhatLiesBetweenThemStays) {
  const uint64_t size = 2 * kMiB;
  const AddressRange source = Make(MemoryOrigin::kDevice, size);
  const AddressRange target = Make(MemoryOrigin::kDevice, size);
  struct {
    uint64_t width, count;
    Rows from, to;
  } const cases[] = {
      {4096, 64, {0, 16384}, {8192, 32768}},
      {777, 64, {13, 2003}, {1, 1009}},  // aligned to nothing
      {1, 1000, {5, 7}, {3, 1}},
      {4096, 64, {0, 4096}, {0, 4096}},  // side by side
      {100 * kKiB + 3, 16, {1, 100 * kKiB + 3}, {17, 120 * kKiB}},
      {512, 1, {99, 512}, {100, 512}},
  };
  Write(source.base, Pattern(0, size, 1));
  for (const auto& c : cases) {
    Write(target.base, Pattern(0, size, 2));
    std::vector<uint8_t> wanted = Pattern(0, size, 2);
    for (uint64_t row = 0; row < c.count; ++row) {
      const std::vector<uint8_t> moved = Pattern(c.from.offset + row * c.from.pitch, c.width, 1);
      std::copy(moved.begin(), moved.end(),
                wanted.begin() + static_cast<std::ptrdiff_t>(c.to.offset + row * c.to.pitch));
    }
    EXPECT_OK(stream_->CopyRows({target.base + c.to.offset, source.base + c.from.offset, c.to.pitch,
                                 c.from.pitch, c.width, c.count}));
    EXPECT_OK(stream_->Synchronize());
    EXPECT_TRUE(Read(target.base, size) == wanted) << c.width << " bytes in " << c.count << " rows";
  }
}

TEST_F(GpuDriverContract, RowsMoveWithinAnAllocationAndToAnotherDevice) {
  constexpr uint64_t kWidth = 16 * kKiB, kRows = 32, kPitch = 3 * kWidth;
  const uint64_t size = kRows * kPitch;
  auto other = driver_->OpenContext(last_device());
  ASSERT_OK(other);
  const auto there = (*other)->Allocate(size);
  ASSERT_OK(there);
  const DeviceAddress peer = (*there)->range().base;
  const AddressRange here = Make(MemoryOrigin::kDevice, size);
  const std::vector<uint8_t> before = Pattern(0, size, 3);
  Write(here.base, before);
  EXPECT_OK((*other)->CopyFromHost(peer, Pattern(0, size, 4).data(), size));
  // The first third of each row to the last one, and then to the middle one of the other device.
  EXPECT_OK(stream_->CopyRows({here.base + 2 * kWidth, here.base, kPitch, kPitch, kWidth, kRows}));
  EXPECT_OK(
      stream_->CopyRows({peer + kWidth, here.base + 2 * kWidth, kPitch, kPitch, kWidth, kRows}));
  EXPECT_OK(stream_->Synchronize());
  std::vector<uint8_t> wanted_here = before;
  std::vector<uint8_t> wanted_there = Pattern(0, size, 4);
  for (uint64_t row = 0; row < size; row += kPitch) {
    const auto first = before.begin() + static_cast<std::ptrdiff_t>(row);
    const auto at = static_cast<std::ptrdiff_t>(row + kWidth);
    std::copy_n(first, kWidth, wanted_here.begin() + at + kWidth);
    std::copy_n(first, kWidth, wanted_there.begin() + at);
  }
  EXPECT_TRUE(Read(here.base, size) == wanted_here);
  std::vector<uint8_t> found(size);
  EXPECT_OK((*other)->CopyToHost(found.data(), peer, size));
  EXPECT_TRUE(found == wanted_there);
  // And back, by a stream that has the destination's device.
  EXPECT_OK(stream_->CopyRows({here.base + kWidth, peer + kWidth, kPitch, kPitch, kWidth, kRows}));
  EXPECT_OK(stream_->Synchronize());
  for (uint64_t row = 0; row < size; row += kPitch) {
    std::copy_n(before.begin() + static_cast<std::ptrdiff_t>(row), kWidth,
                wanted_here.begin() + static_cast<std::ptrdiff_t>(row + kWidth));
  }
  EXPECT_TRUE(Read(here.base, size) == wanted_here);
}

TEST_F(GpuDriverContract, RowsThatOverlapOrLieTooFarApartAreRefused) {
  const AddressRange source = Make(MemoryOrigin::kDevice, kMiB);
  const AddressRange target = Make(MemoryOrigin::kDevice, kMiB);
  const auto refused = [&](gpu::RowCopy rows) {
    rows.to = target.base;
    rows.from = source.base;
    const Status status = stream_->CopyRows(rows);
    return !status && status.error().code == ErrorCode::kInvalidArgument;
  };
  EXPECT_TRUE(refused({{}, {}, 4095, 4096, 4096, 16}));
  EXPECT_TRUE(refused({{}, {}, 4096, 4095, 4096, 16}));
  EXPECT_TRUE(refused({{}, {}, gpu::kRowPitchMax + 1, 4096, 4096, 1}));
  EXPECT_TRUE(refused({{}, {}, 4096, gpu::kRowPitchMax + 1, 4096, 1}));
  EXPECT_TRUE(refused({{}, {}, 4096, 4096, 0, 16}));
  EXPECT_TRUE(refused({{}, {}, 4096, 4096, 4096, 0}));
  EXPECT_OK(stream_->Synchronize());  // no error is left behind
}

TEST_F(GpuDriverContract, CopiesBeyondAnAllocationAreRefused) {
  const AddressRange source = Make(MemoryOrigin::kDevice, 64 * kMiB);
  const AddressRange target = Make(MemoryOrigin::kDevice, 32 * kMiB);
  EXPECT_FALSE(stream_->Copy(target.base + 16 * kMiB, source.base, 32 * kMiB));
}

TEST_F(GpuDriverContract, HostMemoryThatIsRegisteredIsCopiedByItsDeviceAddress) {
  const uint64_t bytes = 2 * kMiB;
  const UniqueFd file(::memfd_create("staging", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(file.get(), static_cast<off_t>(bytes)), 0);
  void* const host =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file.get(), 0);
  ASSERT_NE(host, MAP_FAILED);
  const std::vector<uint8_t> pattern = Pattern(0, bytes, 9);
  std::copy(pattern.begin(), pattern.end(), static_cast<uint8_t*>(host));
  const AddressRange device = Make(MemoryOrigin::kDevice, bytes);
  {
    const auto registered = context_->RegisterHost(host, bytes);
    ASSERT_OK(registered);
    EXPECT_EQ((*registered)->range().size, bytes);
    EXPECT_FALSE(context_->RegisterHost(host, bytes)) << "twice";
    EXPECT_EQ(Resolve(DeviceAddress{reinterpret_cast<uint64_t>(host)}).origin,
              MemoryOrigin::kPinned);
    EXPECT_OK(stream_->Copy(device.base, (*registered)->range().base, bytes));
    EXPECT_OK(stream_->Synchronize());
    EXPECT_EQ(Read(device.base, bytes), pattern);
    Write(device.base, Pattern(0, bytes, 10));
    EXPECT_OK(stream_->Copy((*registered)->range().base, device.base, bytes));
    EXPECT_OK(stream_->Synchronize());
  }
  EXPECT_EQ(std::vector<uint8_t>(static_cast<uint8_t*>(host), static_cast<uint8_t*>(host) + bytes),
            Pattern(0, bytes, 10));
  EXPECT_EQ(Resolve(DeviceAddress{reinterpret_cast<uint64_t>(host)}).origin,
            MemoryOrigin::kUnknown);
  EXPECT_FALSE(context_->RegisterHost(nullptr, bytes));
  ::munmap(host, bytes);
}

TEST_F(GpuDriverContract, BatchesReachTheRegisteredPartOfTheHostsMemory) {
  if (Lacks("batch copy")) GTEST_SKIP() << "this driver copies no batches";
  const uint64_t bytes = 2 * kMiB, half = kMiB, step = 3000, length = 2999;
  const UniqueFd file(::memfd_create("arena", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(file.get(), static_cast<off_t>(bytes)), 0);
  void* const mapped =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);  // not touched yet
  ASSERT_NE(mapped, MAP_FAILED);
  auto* const host = static_cast<uint8_t*>(mapped);
  const AddressRange device = Make(MemoryOrigin::kDevice, half);
  Write(device.base, Pattern(0, half, 11));
  std::vector<uint8_t> expected(half);
  {
    const auto part = context_->RegisterHost(host + half, half);
    ASSERT_OK(part);
    std::vector<gpu::CopyItem> items;
    for (uint64_t at = 0; at + step < half; at += step) {
      items.push_back({(*part)->range().base + (half - step - at), device.base + at, length});
      const std::vector<uint8_t> block = Pattern(at, length, 11);
      std::copy(block.begin(), block.end(),
                expected.begin() + static_cast<std::ptrdiff_t>(half - step - at));
    }
    EXPECT_OK(stream_->CopyBatch(items));
    EXPECT_OK(stream_->Synchronize());
    EXPECT_EQ(std::vector<uint8_t>(host + half, host + bytes), expected);
    EXPECT_TRUE(std::all_of(host, host + half, [](uint8_t byte) { return byte == 0; }));
    for (gpu::CopyItem& item : items) std::swap(item.to, item.from);
    Write(device.base, Pattern(0, half, 12));
    EXPECT_OK(stream_->CopyBatch(items));
    EXPECT_OK(stream_->Synchronize());
  }
  std::vector<uint8_t> again = Pattern(0, half, 12);
  for (uint64_t at = 0; at + step < half; at += step) {
    const std::vector<uint8_t> block = Pattern(at, length, 11);
    std::copy(block.begin(), block.end(), again.begin() + static_cast<std::ptrdiff_t>(at));
  }
  EXPECT_EQ(Read(device.base, half), again);
  ::munmap(mapped, bytes);
}

TEST_F(GpuDriverContract, ADeviceNeedsNoWayToItself) {
  auto same = driver_->OpenContext(0);
  ASSERT_OK(same);
  EXPECT_OK(context_->EnablePeerAccess(**same));
}

TEST_F(GpuDriverContract, PeerAccessMayBeEnabledTwice) {
  if (last_device() == 0) GTEST_SKIP() << "there is one GPU";
  auto other = driver_->OpenContext(last_device());
  ASSERT_OK(other);
  EXPECT_OK(context_->EnablePeerAccess(**other));
  EXPECT_OK(context_->EnablePeerAccess(**other));
  EXPECT_OK((*other)->EnablePeerAccess(*context_));
  EXPECT_OK(context_->NewStream());  // no error is left behind
}

}  // namespace
}  // namespace gantry::testing
