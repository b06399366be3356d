// Both sides of the path bounce in one process: the rdma world over fake devices, staging memory on
// either side, and GPUs whose memory is arenas, which threads copy. Used by one thread at a time.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "sidecar/transport/bounce/bounce_remote_buffer.h"
#include "sidecar/transport/bounce/bounce_transport.h"
#include "sidecar/transport/bounce/stage_target.h"
#include "tests/fakes/fake_target_buffers.h"
#include "tests/sidecar/transport/rdma/fake_rdma_place.h"

namespace gantry::transport {

// Copies between GPUs and one side's staging memory, each on a thread of its own. Thread-safe, but
// for Know.
class ArenaCopier final : public StagingCopier {
 public:
  explicit ArenaCopier(uint8_t* stage) : stage_(stage) {}

  void Know(const memory::MappedAllocation* memory, uint8_t* data) { data_[memory] = data; }
  // What is started from now on fails so.
  void FailWith(Status why) {
    const MutexLock lock(mutex_);
    why_ = std::move(why);
  }
  // What is started waits from now on, until Abort; or goes on.
  void Hold(bool held) {
    const MutexLock lock(mutex_);
    held_ = held;
    changed_.NotifyAll();
  }
  int copies() const { return copies_; }
  int waiting() {
    const MutexLock lock(mutex_);
    return waiting_;
  }

  Status Usable(wire::MemoryKind /*kind*/) const override {
    const MutexLock lock(mutex_);
    return why_;
  }
  void Start(StagedCopy copy) override {
    ++copies_;
    threads_.Run([this, copy = std::make_shared<StagedCopy>(std::move(copy))] { Run(copy.get()); });
  }
  void Abort(const void*) override {
    const MutexLock lock(mutex_);
    ++aborts_;
    changed_.NotifyAll();
  }
  bool Poll() override { return false; }

 private:
  void Run(StagedCopy* copy) {
    Status outcome;
    {
      MutexLock lock(mutex_);
      const int aborts = aborts_;
      ++waiting_;
      const TimePoint end = copy->end.value_or(TimePoint::max());
      while (held_ && aborts == aborts_ && Clock::now() < end) {
        (void)changed_.WaitUntil(lock, std::min(end, Clock::now() + milliseconds(50)));
      }
      --waiting_;
      outcome = why_;
      if (held_) outcome = Fail(ErrorCode::kDeadlineExceeded, "the copy was ended by force");
    }
    for (const StagedRange& range : copy->ranges) {
      if (!outcome) break;
      uint8_t* const on_gpu = data_.at(range.memory.get()) + range.offset;
      uint8_t* const staged = stage_ + range.stage_offset;
      std::memcpy(copy->to_buffer ? on_gpu : staged, copy->to_buffer ? staged : on_gpu,
                  range.bytes);
    }
    copy->ranges.clear();
    copy->done(std::move(outcome));
  }

  uint8_t* const stage_;
  std::map<const memory::MappedAllocation*, uint8_t*> data_;
  std::atomic<int> copies_ = 0;
  mutable Mutex mutex_;
  Condition changed_;
  Status why_ GUARDED_BY(mutex_);
  bool held_ GUARDED_BY(mutex_) = false;
  int aborts_ GUARDED_BY(mutex_) = 0;
  int waiting_ GUARDED_BY(mutex_) = 0;
  HelperThreads threads_{2, 64};  // last: they use the others
};

// The peer API between both, without a network. Thread-safe.
class DirectStageExchange final : public StageExchange {
 public:
  DirectStageExchange(StageTarget& target, TargetBuffers& buffers)
      : target_(target), buffers_(buffers) {}

  Result<wire::StageGrant> Open(uint32_t slices, TimePoint) override {
    ++opens;
    if (cut) return Fail(cut_as, "the peer API is cut");
    return target_.Open("session", std::min(slices, slices_max.load()));
  }
  Status Close(uint64_t stage, TimePoint) override {
    target_.Close("session", stage);
    return {};
  }
  Status Copy(const wire::StagedMove& move, TimePoint) override {
    if (cut) return Fail(ErrorCode::kPeerLost, "the peer API is cut");
    return target_.Copy("session", move, buffers_);
  }

  std::atomic<bool> cut = false;
  std::atomic<ErrorCode> cut_as = ErrorCode::kPeerUnavailable;  // what Open is told then
  std::atomic<int> opens = 0;
  std::atomic<uint32_t> slices_max = UINT32_MAX;

 private:
  StageTarget& target_;
  TargetBuffers& buffers_;
};

class BounceWorld {
 public:
  static constexpr uint32_t kSlices = 16;  // of each half

  explicit BounceWorld(
      const RdmaOptions& options = {},
      const std::vector<gantry::testing::FakeDeviceOptions>& devices = {{.name = "fake0"}})
      : place_(devices, options) {
    auto nic_memory = world().registrar_.Register(
        {{half_here_.allocation, 0, half_here_.memory.size()}}, {false, false});
    EXPECT_TRUE(nic_memory);
    bounce_ = std::make_unique<BounceTransport>(
        world().transport_,
        BounceTransport::Here{half_here_, {half_here_.allocation, *std::move(nic_memory), 0}});
    remote_stage_ =
        bounce_->AddStage("peer", world().peer_, exchange_, {milliseconds(300), milliseconds(300)});
  }

  RdmaWorld& world() { return place_.world(); }
  // Memory of a GPU that no device has, here or there.
  std::shared_ptr<const memory::MappedAllocation> OnGpuHere(
      const gantry::testing::TestArena& arena) {
    auto memory = world().Allocate(arena, /*on_gpu=*/true);
    copier_here_.Know(memory.get(), arena.data());
    return memory;
  }
  RemoteAllocation OnGpuThere(const gantry::testing::TestArena& arena) {
    auto memory = world().Allocate(arena, /*on_gpu=*/true);
    copier_there_.Know(memory.get(), arena.data());
    const std::string id = std::to_string(++last_buffer_);
    owners_.Put(id, BufferOn({std::move(memory)}, {{0, 0, arena.size()}}));
    return {nullptr, std::make_shared<BounceRemoteBuffer>(remote_stage_, id, 1, arena.size())};
  }
  // Memory of the peer's that devices have.
  RemoteAllocation OnNicsThere(const gantry::testing::TestArena& arena) {
    auto direct = world().Remote(world().Describe(arena));
    return {nullptr,
            std::make_shared<Both>(direct.target, std::make_shared<BounceRemoteBuffer>(
                                                      remote_stage_, "none", 1, arena.size()))};
  }

  // Polled as the engine does: rdma before what goes over it.
  PollOutcome Poll(std::vector<uint64_t>* ready_tokens) {
    PollOutcome outcome = world().transport_.Poll(ready_tokens);
    outcome.Add(bounce_->Poll(ready_tokens));
    return outcome;
  }

  gantry::testing::FakeFabric& fabric() { return place_.fabric(); }
  size_t slices_in_use() { return half_here_.slices.in_use(); }

  // What addresses the same buffer by either path.
  class Both final : public RemoteTarget {
   public:
    Both(std::shared_ptr<const RemoteTarget> rdma, std::shared_ptr<const RemoteTarget> bounce)
        : rdma_(std::move(rdma)), bounce_(std::move(bounce)) {}
    uint64_t length() const override { return bounce_->length(); }
    const RemoteTarget* Over(wire::Path path) const override {
      return path == wire::Path::kRdma ? rdma_.get() : bounce_.get();
    }

   private:
    const std::shared_ptr<const RemoteTarget> rdma_;
    const std::shared_ptr<const RemoteTarget> bounce_;
  };

  FakeRdmaPlace place_;
  const gantry::testing::TestArena stage_here_{kSlices * kStagingSliceBytes, 3};
  const gantry::testing::TestArena stage_there_{kSlices * kStagingSliceBytes, 4};
  ArenaCopier copier_here_{stage_here_.data()};
  ArenaCopier copier_there_{stage_there_.data()};
  StagingHalf half_here_ = HalfOf(stage_here_, copier_here_);
  StagingHalf half_there_ = HalfOf(stage_there_, copier_there_);
  StageTarget target_{world().registrar_there_, half_there_, {}};
  FakeTargetBuffers owners_;
  int last_buffer_ = 0;
  const std::shared_ptr<DirectStageExchange> exchange_ =
      std::make_shared<DirectStageExchange>(target_, owners_);
  std::unique_ptr<BounceTransport> bounce_;
  std::shared_ptr<RemoteStage> remote_stage_;

 private:
  StagingHalf HalfOf(const gantry::testing::TestArena& stage, StagingCopier& copier) {
    return {SlicePool(kSlices), std::as_writable_bytes(stage.bytes()), 0, copier,
            world().Allocate(stage, /*on_gpu=*/false)};
  }
};

}  // namespace gantry::transport
