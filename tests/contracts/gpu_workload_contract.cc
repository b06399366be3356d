// A device as the workload's own code uses it: values that streams write to pinned memory.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <set>
#include <thread>

#include "lib/base/dynamic_library.h"
#include "lib/gpu/cuda/cuda_abi.h"
#include "tests/contracts/gpu_pin_contract.h"
#include "tests/contracts/gpu_streams.h"

namespace gantry::testing {
namespace {

using gpu::StreamHandle;

constexpr StreamHandle kNull{0}, kLegacy{1}, kPerThread{2};

class GpuWorkloadContract : public GpuPinContract {
 protected:
  void SetUp() override {
    GpuPinContract::SetUp();
    if (HasFatalFailure()) return;
    if (Lacks("stream writes")) GTEST_SKIP() << "this driver writes nothing in streams' order";
    ASSERT_OK(device_->CheckStreamWrites());
    auto streams = GpuStreams::On(0);
    ASSERT_OK(streams);
    streams_ = *std::move(streams);
  }
  void TearDown() override {
    streams_.reset();
    GpuPinContract::TearDown();
  }

  uint64_t IdOf(StreamHandle stream) {
    const auto id = device_->IdOf(stream);
    EXPECT_OK(id);
    return id.value_or(0);
  }

  std::unique_ptr<GpuStreams> streams_;
};

TEST_F(GpuWorkloadContract, AValueIsWrittenWhenWhatWasBeforeIsDone) {
  const auto own = streams_->New();
  const auto blocking = streams_->New(/*blocking=*/true);
  ASSERT_OK(own);
  ASSERT_OK(blocking);
  const AddressRange memory = Make(MemoryOrigin::kDevice, 4 * kMiB);
  size_t index = 0;
  for (const StreamHandle stream : {*own, *blocking, kNull, kLegacy, kPerThread}) {
    const auto value = static_cast<uint8_t>(index + 1);
    ASSERT_OK(streams_->Hold(stream));
    ASSERT_OK(streams_->Fill(stream, memory.base, value, memory.size));
    IdOf(stream);
    // All eight bytes of it.
    const uint64_t written = 0x0123456789abcd00 + value;
    ASSERT_OK(device_->WriteWhenDone(stream, PlaceOf(index), written));
    std::this_thread::sleep_for(milliseconds(50));
    EXPECT_EQ(Counter(index), 0U) << "written while what was before is not done";
    streams_->LetGo();
    ASSERT_TRUE(Eventually([&] { return Counter(index) != 0; })) << index;
    EXPECT_EQ(Counter(index), written);
    EXPECT_EQ(Read(memory.base + (memory.size - 1), 1), std::vector<uint8_t>{value});
    EXPECT_TRUE(
        std::all_of(page_ + index + 1, page_ + kPage / 8, [](uint64_t at) { return at == 0; }));
    ++index;
  }
}

TEST_F(GpuWorkloadContract, ValuesOfAStreamAreWrittenInTheirOrder) {
  const auto stream = streams_->New();
  ASSERT_OK(stream);
  for (uint64_t value = 1; value <= 500; ++value) {
    ASSERT_OK(device_->WriteWhenDone(*stream, PlaceOf(0), value));
  }
  uint64_t before = 0;
  const TimePoint end = Clock::now() + milliseconds(5'000);
  while (before < 500 && Clock::now() < end) {
    const uint64_t now = Counter(0);
    ASSERT_GE(now, before);
    before = now;
  }
  EXPECT_EQ(before, 500U);
}

TEST_F(GpuWorkloadContract, EveryStreamHasANumberOfItsOwn) {
  const auto first = streams_->New();
  const auto second = streams_->New();
  ASSERT_OK(first);
  ASSERT_OK(second);
  std::set<uint64_t> ids = {IdOf(*first), IdOf(*second), IdOf(kNull), IdOf(kPerThread)};
  // The handle is the same, the stream is another thread's.
  std::thread([&] { ids.insert(IdOf(kPerThread)); }).join();
  EXPECT_EQ(ids.size(), 5U);
  EXPECT_EQ(IdOf(*first), IdOf(*first));
}

TEST_F(GpuWorkloadContract, ACapturedStreamIsRefusedAndItsGraphIsLeftAlone) {
  const auto stream = streams_->New();
  const auto other = streams_->New();
  ASSERT_OK(stream);
  ASSERT_OK(other);
  ASSERT_OK(streams_->BeginCapture(*stream));
  const auto refused = device_->IdOf(*stream);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kConflict) << refused.error().message;
  EXPECT_EQ(refused.error().field, "stream");
  EXPECT_FALSE(refused.error().hint.empty());
  IdOf(*other);  // other streams go on
  ASSERT_OK(device_->WriteWhenDone(*other, PlaceOf(0), 1));
  EXPECT_TRUE(Eventually([&] { return Counter(0) == 1; }));
  EXPECT_OK(streams_->EndCapture(*stream));
  IdOf(*stream);
}

TEST_F(GpuWorkloadContract, TheLegacyStreamIsRefusedWhileOneThatWaitsForItIsCaptured) {
  const auto stream = streams_->New(/*blocking=*/true);
  ASSERT_OK(stream);
  ASSERT_OK(streams_->BeginCapture(*stream));
  const auto refused = device_->IdOf(kNull);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kConflict) << refused.error().message;
  EXPECT_OK(streams_->EndCapture(*stream));
}

TEST_F(GpuWorkloadContract, AStreamOfAnotherDeviceIsRefused) {
  if (last_device() == 0) GTEST_SKIP() << "there is one GPU";
  auto others = GpuStreams::On(last_device());
  ASSERT_OK(others);
  const auto stream = (*others)->New();
  ASSERT_OK(stream);
  const auto refused = device_->IdOf(*stream);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument) << refused.error().message;
  EXPECT_EQ(refused.error().field, "stream");
}

// By their handles alone they would be taken for those of the device asked.
TEST_F(GpuWorkloadContract, DefaultStreamsOfAnotherDeviceThatIsCurrentAreRefused) {
  if (last_device() == 0) GTEST_SKIP() << "there is one GPU";
  const auto others = driver_->OpenContext(last_device());
  ASSERT_OK(others);
  const auto other = GpuAllocations::On(**others);
  ASSERT_OK(other);
  const auto created = streams_->New();
  ASSERT_OK(created);
  ASSERT_OK((*other)->PushCurrent());
  const auto current = allocations_->Current();
  for (const StreamHandle stream : {kNull, kLegacy, kPerThread}) {
    const auto refused = device_->IdOf(stream);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument) << refused.error().message;
    EXPECT_EQ(refused.error().field, "stream");
    EXPECT_NE(refused.error().message.find(context_->device().uuid), std::string::npos);
    if (IsAmd()) continue;  // HIP names the other one by its number alone
    for (const gpu::DeviceInfo& info : {(*others)->device(), context_->device()}) {
      EXPECT_NE(refused.error().message.find(info.uuid), std::string::npos);
      EXPECT_NE(refused.error().hint.find(info.uuid), std::string::npos);
    }
  }
  IdOf(*created);  // says itself whose it is
  ASSERT_OK(device_->WriteWhenDone(*created, PlaceOf(0), 1));
  EXPECT_EQ(allocations_->Current(), current);
  (*other)->PopCurrent();
  ASSERT_OK(allocations_->PushCurrent());
  EXPECT_NE(IdOf(kNull), 0U);
  allocations_->PopCurrent();
  EXPECT_OK(streams_->Synchronize(*created));
}

TEST_F(GpuWorkloadContract, PlacesThatCannotBeOnesAreRefused) {
  const auto stream = streams_->New();
  ASSERT_OK(stream);
  for (const DeviceAddress place : {DeviceAddress{0}, pinned_->range().base + 4}) {
    const auto refused = device_->WriteWhenDone(*stream, place, 1);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  }
}

TEST_F(GpuWorkloadContract, WhatIsCurrentForTheCallerStaysSo) {
  const auto stream = streams_->New();
  ASSERT_OK(stream);
  IdOf(*stream);
  EXPECT_OK(device_->WriteWhenDone(*stream, PlaceOf(0), 1));
  EXPECT_EQ(allocations_->Current(), before_);
  EXPECT_OK(streams_->Synchronize(*stream));
  EXPECT_OK(pinned_->Unpin());
  EXPECT_EQ(allocations_->Current(), before_);
}

TEST_F(GpuWorkloadContract, WhatIsCurrentStaysSoAlsoWhenItIsAnotherDevices) {
  const auto others = driver_->OpenContext(last_device());
  ASSERT_OK(others);
  const auto other = GpuAllocations::On(**others);
  ASSERT_OK(other);
  const auto stream = streams_->New();
  ASSERT_OK(stream);
  ASSERT_OK((*other)->PushCurrent());
  const auto current = allocations_->Current();
  EXPECT_OK(driver_->OpenWorkloadDevice(0));
  EXPECT_OK(device_->CheckStreamWrites());
  IdOf(*stream);
  EXPECT_OK(device_->WriteWhenDone(*stream, PlaceOf(0), 1));
  EXPECT_OK(streams_->Synchronize(*stream));
  EXPECT_OK(pinned_->Unpin());
  EXPECT_OK(device_->Pin(page_, kPage));
  EXPECT_EQ(allocations_->Current(), current);
  (*other)->PopCurrent();
}

TEST_F(GpuWorkloadContract, AGraphThatAnotherThreadCapturesIsLeftAlone) {
  const auto stream = streams_->New();
  const auto other = streams_->New();
  ASSERT_OK(stream);
  ASSERT_OK(other);
  ASSERT_OK(streams_->BeginCapture(*stream));
  std::thread([&] {
    const auto device = driver_->OpenWorkloadDevice(0);
    ASSERT_OK(device);
    EXPECT_OK((*device)->CheckStreamWrites());
    EXPECT_OK(pinned_->Unpin());
    auto pinned = (*device)->Pin(page_, kPage);
    ASSERT_OK(pinned);
    EXPECT_OK((*device)->IdOf(*other));
    EXPECT_OK((*pinned)->Unpin());
  }).join();
  EXPECT_OK(streams_->EndCapture(*stream));
}

// In a process of its own: nothing else there could go on.
using GpuWorkloadContractDeathTest = GpuWorkloadContract;

TEST_F(GpuWorkloadContractDeathTest, AContextThatWasResetAndIsUsedAgainIsAnother) {
  if (IsAmd()) GTEST_SKIP() << "HIP gives contexts no numbers";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto holds = [](bool condition, int line) {
    if (condition) return;
    std::fprintf(stderr, "line %d does not hold", line);
    ::_exit(1);
  };
  EXPECT_EXIT(
      {
        gpu::cuda::Result (*reset)(gpu::cuda::Device) = nullptr;
        gpu::cuda::Result (*retain)(gpu::cuda::Context*, gpu::cuda::Device) = nullptr;
        const auto library = DynamicLibrary::Open("libcuda.so.1").value();
        holds(library.Bind("cuDevicePrimaryCtxReset_v2", &reset).has_value(), __LINE__);
        holds(library.Bind("cuDevicePrimaryCtxRetain", &retain).has_value(), __LINE__);
        const auto is_reset = [](const auto& answer) {
          return !answer && answer.error().code == ErrorCode::kDeviceError &&
                 answer.error().hint.find("new timeline") != std::string::npos;
        };
        holds(!pinned_->IsGone(), __LINE__);
        holds(reset(0) == 0, __LINE__);
        gpu::cuda::Context context = nullptr;
        holds(retain(&context, 0) == 0, __LINE__);
        holds(is_reset(device_->IdOf(kNull)), __LINE__);
        holds(is_reset(device_->WriteWhenDone(kNull, PlaceOf(0), 1)), __LINE__);
        holds(is_reset(device_->Pin(page_, kPage)), __LINE__);
        holds(pinned_->IsGone(), __LINE__);
        // The program uses the device, and the page, again: that pin is not for the old one to end.
        auto anew = driver_->OpenWorkloadDevice(0).value();
        const auto pinned = anew->Pin(page_, kPage);
        holds(pinned.has_value(), __LINE__);
        holds(pinned_->Unpin().has_value(), __LINE__);
        holds(anew->IdOf(kNull).has_value(), __LINE__);
        holds(anew->WriteWhenDone(kNull, (*pinned)->range().base, 7).has_value(), __LINE__);
        holds(Eventually([&] { return Counter(0) == 7; }), __LINE__);
        ::_exit(0);
      },
      ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace gantry::testing
