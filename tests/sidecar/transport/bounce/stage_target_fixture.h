// A sidecar that lends staging memory: two fake devices, the target's half of 32 slices, buffers
// and a copier by hand; and a peer's queue pair to its first device. Used by one thread unless a
// test says otherwise.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sidecar/transport/bounce/stage_target.h"
#include "sidecar/transport/rdma/verbs/rdma_registrar.h"
#include "tests/fakes/counting_mapper.h"
#include "tests/fakes/fake_target_buffers.h"
#include "tests/fakes/fake_verbs_fixture.h"
#include "tests/fakes/hand_copier.h"

namespace gantry::transport {

class StageTargetFixture : public testing::FakeVerbsFixture {
 protected:
  using FakeCall = gantry::testing::FakeCall;
  using FakeLive = gantry::testing::FakeLive;

  static constexpr uint32_t kSlices = 32;  // of the half
  static constexpr uint32_t kLent = 16;    // at most
  static constexpr uint32_t kOwn = 8;      // of a session, at most
  static constexpr uint64_t kHalf = kSlices * kStagingSliceBytes;
  static constexpr uint64_t kGpuBytes = 4 * kStagingSliceBytes;

  StageTargetFixture() {
    Make({});
    buffers_.Put("b-1", BufferOn({GpuAllocation()}, {{0, 100, kGpuBytes - 200}}));
  }
  // Nothing lasts.
  void TearDown() override {
    for (const char* session : {"a", "b", "c"}) target_->End(session);
    EXPECT_EQ(target_->totals().stages, 0u);
    EXPECT_EQ(target_->totals().slices, 0u);
    EXPECT_EQ(half_.slices.in_use(), 0u);
    EXPECT_EQ(host_.live().regions, lost_regions_);
    EXPECT_EQ(buffers_.in_use(), 0);
  }
  void Make(const StageTarget::Limits& limits, memory::NicRegistrar* nics = nullptr) {
    target_.emplace(nics != nullptr ? *nics : registrar_, half_, limits);
  }

  std::shared_ptr<const memory::MappedAllocation> GpuAllocation(bool writable = true) {
    return GpuAllocationOf(mapper_, anything_, kGpuBytes, writable);
  }

  wire::StageGrant Open(const std::string& session, uint32_t slices) {
    auto grant = target_->Open(session, slices);
    EXPECT_TRUE(grant) << grant.error().message;
    return grant ? *std::move(grant) : wire::StageGrant();
  }
  ErrorCode RefusalOfOpen(const std::string& session, uint32_t slices) {
    const auto grant = target_->Open(session, slices);
    EXPECT_FALSE(grant);
    return grant ? ErrorCode::kInternal : grant.error().code;
  }
  // Of buffer b-1, in these slices.
  static wire::StagedMove Move(const wire::StageGrant& grant, bool to_buffers,
                               std::vector<wire::StagedMove::Range> ranges,
                               std::vector<uint32_t> slices) {
    wire::StagedMove move;
    move.stage = grant.stage;
    move.to_buffers = to_buffers;
    move.buffers = {{"b-1", 1}};
    move.ranges = std::move(ranges);
    move.slices = std::move(slices);
    move.time_ms = 5'000;
    return move;
  }
  std::future<Status> CopyLater(const std::string& session, wire::StagedMove move) {
    return std::async(std::launch::async, [this, session, move = std::move(move)] {
      return target_->Copy(session, move, buffers_);
    });
  }
  // What becomes of a copy that nothing is to come of; one that is begun ends.
  Status Refusal(const std::string& session, const wire::StagedMove& move) {
    auto copied = CopyLater(session, move);
    while (!Ended(copied, milliseconds(5))) {
      if (auto copy = copier_.Next(milliseconds(0))) copier_.Finish(*std::move(copy));
    }
    return copied.get();
  }
  static bool Ended(const std::future<Status>& copy, milliseconds time = milliseconds(0)) {
    return copy.wait_for(time) == std::future_status::ready;
  }

  // How work of a peer ends that is between `length` bytes of its own and some of a slice.
  WorkStatus Reach(const wire::RdmaChunk& slice, uint64_t offset, uint32_t length,
                   WorkOperation operation = WorkOperation::kRead) {
    const auto peer = MakeEnd(one_, "a0", 0x77);
    if (!written_.empty()) {
      std::transform(written_.begin(), written_.end(), peer->memory.begin(),
                     [](char each) { return static_cast<std::byte>(each); });
    }
    VerbsDevice& device = *devices_->at(0).device;
    auto queue = *device.CreateCompletionQueue(8);
    auto pair = *device.CreateQueuePair(*queue, Options());
    QueuePairAddress here = peer->Address();
    here.number = pair->number();
    here.gid = device.Gids()[1].gid;
    EXPECT_TRUE(pair->Connect(here, peer->Address(), Options()));
    EXPECT_TRUE(peer->pair->Connect(peer->Address(), here, Options()));
    WorkItem item = Item(1, operation, *peer, 0, length, *peer, 0);
    item.remote_address = slice.address + offset;
    item.remote_key = slice.keys.at(0);
    EXPECT_EQ(Post(*peer, {item}), 1u);
    const std::vector<WorkCompletion> done = peer->Poll();
    read_.resize(length);
    std::transform(peer->memory.begin(), peer->memory.begin() + length, read_.begin(),
                   [](std::byte each) { return static_cast<char>(each); });
    return done.size() == 1 ? done[0].status : WorkStatus::kGeneral;
  }
  // What a peer reads there.
  std::string Read(const wire::RdmaChunk& slice, uint64_t offset, uint32_t length) {
    EXPECT_EQ(Reach(slice, offset, length), WorkStatus::kSuccess);
    return read_;
  }
  void Write(const wire::RdmaChunk& slice, uint64_t offset, std::string bytes) {
    written_ = std::move(bytes);
    EXPECT_EQ(Reach(slice, offset, static_cast<uint32_t>(written_.size()), WorkOperation::kWrite),
              WorkStatus::kSuccess);
    written_.clear();
  }

  gantry::testing::FakeVerbs host_{fabric_, {{.name = "first"}, {.name = "second"}}};
  const std::unique_ptr<RdmaDevices> devices_ = *RdmaDevices::Open({}, host_);
  RdmaRegistrar registrar_{*devices_};
  CountingMapper mapper_;
  const TestArena anything_{4096};
  const TestArena staging_{2 * kHalf, 7};  // what others left there
  const std::shared_ptr<const memory::MappedAllocation> staged_ = AllocationOf(mapper_, staging_);
  const std::span<std::byte> bytes_ = *staged_->in_process().Bytes();
  HandCopier copier_{bytes_, kGpuBytes};
  StagingHalf half_{SlicePool(kSlices), bytes_.subspan(kHalf), kHalf, copier_, staged_};
  FakeTargetBuffers buffers_;
  std::optional<StageTarget> target_;

  int lost_regions_ = 0;  // that a device was made not to let go of

 private:
  std::string written_;
  std::string read_;
};

}  // namespace gantry::transport
