#include "sidecar/worker/process/worker_loop.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "sidecar/worker/channel/futex_wait.h"
#include "tests/fakes/test_arena.h"
#include "tests/sidecar/worker/await_completion.h"

namespace gantry::worker {
namespace {

using ::gantry::testing::TestArena;

constexpr uint64_t kAllocationBytes = 64 << 10;
constexpr memory::MappingId kSource = {0, 1};
constexpr memory::MappingId kDestination = {1, 2};
constexpr memory::MappingId kReadOnly = {2, 3};

// A worker's loop on a thread of this process, with the pool's end of its ring.
class WorkerLoopTest : public ::testing::Test {
 protected:
  WorkerLoopTest() {
    Add(kSource, source_, true);
    Add(kDestination, destination_, true);
    Add(kReadOnly, source_, false);
  }
  ~WorkerLoopTest() override { StopLoop(); }

  void Add(memory::MappingId id, const TestArena& memory, bool writable) {
    auto mapping = memory::HostMapping::Create(memory.source().fd->get(), memory.size(), writable);
    EXPECT_TRUE(mapping && mappings_.Add(id, std::move(*mapping)));
  }
  void StopLoop() {
    loop_.Stop();
    if (thread_.joinable()) thread_.join();
  }
  Completion RunJob(uint64_t tag, const std::vector<CopySegment>& segments) {
    EXPECT_TRUE(pool_.Submit(tag, segments));
    return AwaitCompletion(&pool_);
  }
  static CopySegment Plain(memory::MappingId from, memory::MappingId to, uint64_t offset,
                           uint64_t length) {
    return {from, to, offset, offset, length, 0, 0, 1};
  }
  bool Moved(uint64_t offset, uint64_t length) const {
    return std::equal(source_.data() + offset, source_.data() + offset + length,
                      destination_.data() + offset);
  }

  TestArena source_{kAllocationBytes};
  TestArena destination_{kAllocationBytes, 0};
  MappingTable mappings_;
  std::unique_ptr<RingLayout> memory_ = std::make_unique<RingLayout>();
  Doorbell doorbell_ = {};
  PoolRingEnd pool_{InitializeRing(memory_.get())};
  WorkerRingEnd worker_{memory_.get(), &doorbell_};
  WorkerLoop loop_{&worker_, &mappings_, microseconds(20)};
  Status outcome_;
  std::thread thread_{[this] { outcome_ = loop_.Run(); }};
};

TEST_F(WorkerLoopTest, CopiesAndMeasures) {
  const Completion completion =
      RunJob(9, {Plain(kSource, kDestination, 0, 1000), Plain(kSource, kDestination, 8000, 5000)});
  EXPECT_EQ(completion.tag, 9U);
  EXPECT_TRUE(completion.ok);
  EXPECT_GT(completion.copy_nanoseconds, 0U);
  EXPECT_TRUE(Moved(0, 1000) && Moved(8000, 5000));
  EXPECT_FALSE(Moved(1000, 7000));
}

TEST_F(WorkerLoopTest, CopiesWhatIsStreamedAndNothingElse) {
  CopySegment streamed = Plain(kSource, kDestination, 4099, 8195);
  streamed.streamed = true;
  EXPECT_TRUE(RunJob(9, {streamed, Plain(kSource, kDestination, 0, 10)}).ok);
  EXPECT_TRUE(Moved(4099, 8195));
  EXPECT_EQ(destination_.data()[4098], 0);
  EXPECT_EQ(destination_.data()[4099 + 8195], 0);
}

TEST_F(WorkerLoopTest, RefusesAStaleMapping) {
  for (const memory::MappingId stale : {memory::MappingId{0, 9}, {9, 1}, {~0U, 1}, {0, 0}}) {
    const Completion read = RunJob(1, {Plain(stale, kDestination, 0, 10)});
    EXPECT_FALSE(read.ok);
    EXPECT_EQ(read.code, ErrorCode::kStaleGeneration);
    const Completion write = RunJob(2, {Plain(kSource, stale, 0, 10)});
    EXPECT_EQ(write.code, ErrorCode::kStaleGeneration);
  }
}

TEST_F(WorkerLoopTest, RefusesWhatLiesOutside) {
  EXPECT_EQ(RunJob(1, {Plain(kSource, kDestination, kAllocationBytes - 1, 2)}).code,
            ErrorCode::kOutOfRange);
}

TEST_F(WorkerLoopTest, NeverWritesToAReadOnlyMapping) {
  const Completion completion = RunJob(1, {Plain(kDestination, kReadOnly, 0, 10)});
  EXPECT_FALSE(completion.ok);
  EXPECT_EQ(completion.code, ErrorCode::kFdReadOnly);
}

TEST_F(WorkerLoopTest, AJobMovesNothingMoreAfterARefusalAndTheNextOneWorks) {
  const Completion failed = RunJob(1, {Plain(kSource, kDestination, kAllocationBytes, 1),
                                       Plain(kSource, kDestination, 0, 1000)});
  EXPECT_FALSE(failed.ok);
  EXPECT_FALSE(Moved(0, 1000));
  EXPECT_TRUE(RunJob(2, {Plain(kSource, kDestination, 0, 1000)}).ok);
  EXPECT_TRUE(Moved(0, 1000));
}

TEST_F(WorkerLoopTest, LetsGoOfMappingsWhenItIsIdle) {
  EXPECT_TRUE(RunJob(1, {Plain(kSource, kDestination, 0, 1000)}).ok);
  EXPECT_TRUE(mappings_.Remove(kSource));
  EXPECT_TRUE(mappings_.Remove(kDestination));
  EXPECT_EQ(RunJob(2, {Plain(kSource, kDestination, 0, 10)}).code, ErrorCode::kStaleGeneration);
}

TEST_F(WorkerLoopTest, ACorruptRingEndsIt) {
  memory_->submission_head.value = kFirstIndex + kSubmissionSlots + 1;
  worker_.WakeWorker();
  thread_.join();
  ASSERT_FALSE(outcome_);
  EXPECT_EQ(outcome_.error().code, ErrorCode::kInternal);
}

TEST_F(WorkerLoopTest, StopsWhileItSleeps) {
  std::this_thread::sleep_for(milliseconds(20));
  StopLoop();
  EXPECT_TRUE(outcome_);
}

class WorkerRingWait : public ::testing::Test {
 protected:
  void Wait(nanoseconds spin, const WorkerRingEnd::Meanwhile& meanwhile) {
    ring_.WaitForSegment(BoundedSpin(spin), stop_, meanwhile);
  }
  void SendWakeHint() {
    ++doorbell_.wake_hints.value;
    FutexWake(memory_->worker_sleeps.value, 1);
  }
  bool Sleeps() const { return memory_->worker_sleeps.value.load() != 0; }

  std::unique_ptr<RingLayout> memory_ = std::make_unique<RingLayout>();
  Doorbell doorbell_ = {};
  PoolRingEnd pool_{InitializeRing(memory_.get())};
  WorkerRingEnd ring_{memory_.get(), &doorbell_};
  std::atomic<bool> stop_ = false;
};

TEST_F(WorkerRingWait, DoesSomethingElseBetweenTwoLooks) {
  int calls = 0;
  const auto stop_at_third = [&] {
    if (++calls == 3) stop_ = true;
  };
  Wait(milliseconds(10'000), {stop_at_third, {}});
  EXPECT_EQ(calls, 3);
  Wait(milliseconds(10'000), {[&] { ++calls; }, {}});
  EXPECT_EQ(calls, 3) << "not before the first look";
}

TEST_F(WorkerRingWait, SaysOnceThatItWasWokenAndWaitsForWhatWasPromised) {
  int woken = 0;
  std::thread caller([&] {
    while (!Sleeps()) std::this_thread::yield();
    SendWakeHint();
    while (Sleeps()) {  // it was about to
      FutexWake(memory_->worker_sleeps.value, 1);
      std::this_thread::yield();
    }
  });
  const auto submit = [&] {
    ++woken;
    const CopySegment segment = {};
    EXPECT_TRUE(pool_.Submit(1, {&segment, 1}));
  };
  Wait(nanoseconds(0), {{}, submit});
  caller.join();
  EXPECT_EQ(woken, 1);
  EXPECT_TRUE(ring_.HasSegment());
}

// A job wakes a worker up without a promise of others.
TEST_F(WorkerRingWait, WhoIsWokenForAJobGetsNoHint) {
  int woken = 0;
  std::thread caller([&] {
    while (!Sleeps()) std::this_thread::yield();
    const CopySegment segment = {};
    EXPECT_TRUE(pool_.Submit(1, {&segment, 1}));
  });
  Wait(nanoseconds(0), {{}, [&] { ++woken; }});
  caller.join();
  EXPECT_EQ(woken, 0);
  EXPECT_TRUE(ring_.HasSegment());
}

}  // namespace
}  // namespace gantry::worker
