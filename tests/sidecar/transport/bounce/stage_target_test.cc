// What sessions of peers are lent: slices of their own alone, within limits, and as if nobody had
// used them before.
#include <atomic>
#include <set>
#include <thread>

#include "tests/sidecar/transport/bounce/stage_target_fixture.h"

namespace gantry::transport {
namespace {

using StageTargetTest = StageTargetFixture;

constexpr uint64_t kLast = kStagingSliceBytes - 1;

TEST_F(StageTargetTest, SlicesAreRegisteredOneByOneOnEveryDevice) {
  const wire::StageGrant grant = Open("a", 3);
  EXPECT_NE(grant.stage, 0u);
  EXPECT_EQ(grant.slice_bytes, kStagingSliceBytes);
  EXPECT_EQ(grant.devices, (std::vector<uint32_t>{0, 1}));
  ASSERT_EQ(grant.slices.size(), 3u);
  std::set<uint64_t> places;
  for (const wire::RdmaChunk& slice : grant.slices) {
    EXPECT_EQ(slice.length, kStagingSliceBytes);
    EXPECT_EQ(slice.keys.size(), 2u);
    places.insert(slice.address);
    EXPECT_EQ(Reach(slice, 0, 1), WorkStatus::kSuccess);
    EXPECT_EQ(Reach(slice, kLast, 1), WorkStatus::kSuccess);
    EXPECT_EQ(Reach(slice, kLast, 1, WorkOperation::kWrite), WorkStatus::kSuccess);
    // Neighbours may be the session's own: each key opens one slice.
    EXPECT_EQ(Reach(slice, kLast, 2), WorkStatus::kRemoteAccess);
    EXPECT_EQ(Reach(slice, -uint64_t{1}, 1), WorkStatus::kRemoteAccess);
    EXPECT_EQ(Reach(slice, kStagingSliceBytes, 1, WorkOperation::kWrite),
              WorkStatus::kRemoteAccess);
  }
  EXPECT_EQ(places.size(), 3u);
  EXPECT_EQ(host_.live().regions, 6);
  EXPECT_EQ(half_.slices.in_use(), 3u);
  EXPECT_EQ(target_->totals().stages, 1u);
  EXPECT_EQ(target_->totals().slices, 3u);
}

TEST_F(StageTargetTest, TheyAreOfTheTargetsHalf) {
  const wire::StageGrant grant = Open("a", kOwn);
  const auto begin = reinterpret_cast<uintptr_t>(half_.memory.data());
  for (const wire::RdmaChunk& slice : grant.slices) {
    EXPECT_GE(slice.address, begin);
    EXPECT_LE(slice.address + slice.length, begin + half_.memory.size());
  }
}

TEST_F(StageTargetTest, ASessionHasItsShareAndOneStage) {
  EXPECT_EQ(Open("a", wire::kStageSlicesMax).slices.size(), kOwn);
  EXPECT_EQ(RefusalOfOpen("a", 1), ErrorCode::kConflict);
  EXPECT_EQ(host_.live().regions, 2 * static_cast<int>(kOwn));
}

TEST_F(StageTargetTest, AllSessionsTogetherLeaveSomeToTcp) {
  ASSERT_EQ(Open("a", kOwn).slices.size(), kOwn);
  ASSERT_EQ(Open("b", kLent - kOwn - 1).slices.size(), kLent - kOwn - 1);
  EXPECT_EQ(Open("c", 3).slices.size(), 1u) << "as many as there are";
  EXPECT_EQ(RefusalOfOpen("d", 1), ErrorCode::kResourceExhausted);
  EXPECT_EQ(half_.slices.in_use(), kLent);
  target_->End("c");
  EXPECT_EQ(Open("c", 3).slices.size(), 1u);
}

TEST_F(StageTargetTest, NobodyIsKeptWaitingNorPassed) {
  auto most = half_.slices.Take(kSlices - 2, nullptr);
  ASSERT_TRUE(most);
  EXPECT_EQ(Open("a", 4).slices.size(), 2u) << "what is free";
  EXPECT_EQ(RefusalOfOpen("b", 1), ErrorCode::kResourceExhausted);
  std::optional<SliceLease> later;
  ASSERT_FALSE(half_.slices.Take(3, [&](SliceLease lease) { later = std::move(lease); }));
  target_->End("a");
  EXPECT_EQ(RefusalOfOpen("b", 1), ErrorCode::kResourceExhausted) << "somebody waits for them";
  most->Release();
  EXPECT_TRUE(later);
  EXPECT_TRUE(target_->Open("b", 1));
}

TEST_F(StageTargetTest, WhoCannotLendSaysWhy) {
  EXPECT_TRUE(target_->Usable());
  copier_.SetUsable(false);
  EXPECT_EQ(target_->Usable().error().message, "nobody copies");
  EXPECT_EQ(RefusalOfOpen("a", 1), ErrorCode::kPathUnavailable);
  copier_.SetUsable(true);
  // All of it may be one request's of tcp.
  StagingHalf small{SlicePool(kStagingSlicesAtOnce), bytes_, 0, copier_, staged_};
  target_.emplace(registrar_, small, StageTarget::Limits{});
  EXPECT_NE(target_->Usable().error().hint.find("--staging-bytes"), std::string::npos);
  EXPECT_EQ(RefusalOfOpen("a", 1), ErrorCode::kPathUnavailable);
  StagingHalf larger{SlicePool(kStagingSlicesAtOnce + 1), bytes_, 0, copier_, staged_};
  target_.emplace(registrar_, larger, StageTarget::Limits{});
  EXPECT_TRUE(target_->Usable());
  EXPECT_EQ(Open("a", 5).slices.size(), 1u);
  target_->End("a");
}

// Whoever had a slice before, peers or tcp, finds no reader; whoever had a key, no memory.
TEST_F(StageTargetTest, WhatWasThereBeforeIsGone) {
  constexpr uint32_t kPart = 16 * 1024;  // of a peer's memory
  const wire::StageGrant first = Open("a", kOwn);
  for (const wire::RdmaChunk& slice : first.slices) {
    for (uint64_t at = 0; at < kStagingSliceBytes; at += kPart) {
      ASSERT_EQ(Read(slice, at, kPart), std::string(kPart, '\0')) << at;
    }
    Write(slice, 0, "secret");
    Write(slice, kLast - 5, "secret");
  }
  target_->Close("a", first.stage);
  for (const wire::RdmaChunk& slice : first.slices) {
    EXPECT_EQ(Reach(slice, 0, 1), WorkStatus::kRemoteAccess);
    EXPECT_EQ(Reach(slice, 0, 1, WorkOperation::kWrite), WorkStatus::kRemoteAccess);
  }
  const wire::StageGrant second = Open("b", kOwn);
  for (const wire::RdmaChunk& slice : second.slices) {
    EXPECT_EQ(Read(slice, 0, 6), std::string(6, '\0'));
    EXPECT_EQ(Read(slice, kLast - 5, 6), std::string(6, '\0'));
  }
  // Most of them are the same places.
  for (const wire::RdmaChunk& slice : first.slices) {
    EXPECT_EQ(Reach(slice, 0, 1), WorkStatus::kRemoteAccess) << "with the key of before";
  }
}

TEST_F(StageTargetTest, NobodyGetsASliceThatADeviceStillHas) {
  const wire::StageGrant grant = Open("a", kOwn);
  auto others = half_.slices.Take(kSlices - kOwn, nullptr);
  ASSERT_TRUE(others);
  int regions = -1;
  ASSERT_FALSE(half_.slices.Take(1, [&](SliceLease) { regions = host_.live().regions; }));
  target_->Close("a", grant.stage);
  EXPECT_EQ(regions, 0);
}

TEST_F(StageTargetTest, ARegistrationThatFailsHalfWayLeavesNothing) {
  for (int nth = 1; nth <= 3; ++nth) {
    host_.FailCall("second", FakeCall::kRegister, nth, EIO);
    const auto failed = target_->Open("a", 3);
    ASSERT_FALSE(failed);
    EXPECT_EQ(failed.error().code, ErrorCode::kDeviceError);
    EXPECT_NE(failed.error().message.find("staging memory"), std::string::npos);
    EXPECT_EQ(host_.live().regions, 0);
    EXPECT_EQ(half_.slices.in_use(), 0u);
    EXPECT_EQ(target_->totals().stages, 0u);
  }
  EXPECT_EQ(Open("a", 3).slices.size(), 3u);
}

TEST_F(StageTargetTest, DevicesThatTakeNoWholeSliceAreNoWay) {
  RdmaOptions options;
  options.chunk_bytes = kStagingSliceBytes / 2;
  const std::unique_ptr<RdmaDevices> devices = *RdmaDevices::Open(options, host_);
  RdmaRegistrar registrar(*devices);
  Make({}, &registrar);
  const auto refused = target_->Open("a", 2);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kPathUnavailable);
  EXPECT_EQ(host_.live().regions, 0);
  EXPECT_EQ(half_.slices.in_use(), 0u);
}

TEST_F(StageTargetTest, KeysAreOfTheDevicesThatAreChosen) {
  RdmaRegistrar registrar(*devices_, [](const auto&) { return DeviceSet{1}; });
  Make({}, &registrar);
  const wire::StageGrant grant = Open("a", 2);
  EXPECT_EQ(grant.devices, (std::vector<uint32_t>{1}));
  for (const wire::RdmaChunk& slice : grant.slices) EXPECT_EQ(slice.keys.size(), 1u);
  target_->End("a");
}

TEST_F(StageTargetTest, ASessionClosesNoStageOfAnother) {
  const wire::StageGrant mine = Open("a", 1);
  const wire::StageGrant others = Open("b", 1);
  EXPECT_NE(mine.stage, others.stage);
  target_->Close("a", others.stage);
  target_->Close("c", others.stage);
  target_->Close("c", 0);
  target_->End("c");
  EXPECT_EQ(target_->totals().stages, 2u);
  target_->Close("a", mine.stage);
  target_->Close("a", mine.stage);
  EXPECT_EQ(target_->totals().stages, 1u);
  EXPECT_EQ(host_.live().regions, 2);
  target_->Close("b", 0);
  EXPECT_EQ(target_->totals().stages, 0u);
}

TEST_F(StageTargetTest, SlicesThatADeviceDoesNotLetGoOfAreNobodysAnyMore) {
  (void)Open("a", 2);
  host_.FailCall("second", FakeCall::kDeregister, 1, EBUSY);
  target_->End("a");
  EXPECT_EQ(target_->totals().stages, 0u);
  EXPECT_EQ(target_->totals().slices, 2u);
  EXPECT_EQ(half_.slices.in_use(), 2u);
  (void)Open("b", 1);
  target_->End("b");
  EXPECT_EQ(half_.slices.in_use(), 2u);
  Make({});  // as after a new start
  lost_regions_ = 1;
}

TEST_F(StageTargetTest, AThousandStagesLeaveNothing) {
  std::set<uint64_t> numbers;
  for (int i = 0; i < 1'000; ++i) {
    const wire::StageGrant grant = Open("a", 1 + i % 3);
    numbers.insert(grant.stage);
    i % 2 == 0 ? target_->Close("a", grant.stage) : target_->End("a");
    ASSERT_EQ(host_.live().regions, 0);
    ASSERT_EQ(half_.slices.in_use(), 0u);
  }
  EXPECT_EQ(numbers.size(), 1'000u);
}

TEST_F(StageTargetTest, SessionsOpenAndEndAtOnce) {
  std::atomic<bool> stop = false;
  std::atomic<int> opened = 0;
  std::vector<std::jthread> threads;
  for (const char* session : {"a", "b", "c"}) {
    for (int i = 0; i < 2; ++i) {
      threads.emplace_back([this, session, &stop, &opened] {
        while (!stop) {
          const auto grant = target_->Open(session, 2);
          if (!grant) continue;
          ++opened;
          target_->Close(session, grant->stage);
        }
      });
    }
    threads.emplace_back([this, session, &stop] {
      while (!stop) target_->End(session);
    });
  }
  std::this_thread::sleep_for(milliseconds(200));
  stop = true;
  threads.clear();
  EXPECT_GT(opened, 0);
  EXPECT_EQ(target_->totals().slices, 0u);
  EXPECT_EQ(half_.slices.in_use(), 0u);
  EXPECT_EQ(host_.live().regions, 0);
}

}  // namespace
}  // namespace gantry::transport
