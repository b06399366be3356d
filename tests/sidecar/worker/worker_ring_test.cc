#include "sidecar/worker/channel/worker_ring.h"

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <random>
#include <thread>
#include <vector>

namespace gantry::worker {
namespace {

constexpr uint32_t kFirstSubmission = kFirstIndex % kSubmissionSlots;
constexpr uint32_t kFirstCompletion = kFirstIndex % kCompletionSlots;

// Both ends over plain memory of one process.
struct Ring {
  std::unique_ptr<RingLayout> memory = std::make_unique<RingLayout>();
  Doorbell doorbell = {};
  PoolRingEnd pool{InitializeRing(memory.get())};
  WorkerRingEnd worker{memory.get(), &doorbell};

  RingTake Take() {
    uint64_t tag = 0;
    CopySegment segment;
    bool ends_job = false;
    return worker.TakeSegment(&tag, &segment, &ends_job);
  }
  RingTake TakeCompletion() {
    Completion completion;
    return pool.TakeCompletion(&completion);
  }
};

CopySegment Numbered(uint64_t number) {
  CopySegment segment;
  segment.source = {1, 2};
  segment.destination = {3, 4};
  segment.source_offset = number;
  segment.destination_offset = number + 1;
  segment.length = number + 2;
  segment.source_stride = number + 3;
  segment.destination_stride = number + 4;
  segment.count = static_cast<uint32_t>(number) + 5;
  return segment;
}

TEST(WorkerRing, CarriesJobsAndCompletions) {
  Ring ring;
  const std::vector<CopySegment> segments = {Numbered(10), Numbered(20)};
  ASSERT_TRUE(ring.pool.Submit(77, segments));
  for (size_t i = 0; i < segments.size(); ++i) {
    uint64_t tag = 0;
    CopySegment segment;
    bool ends_job = false;
    ASSERT_EQ(ring.worker.TakeSegment(&tag, &segment, &ends_job), RingTake::kEntry);
    EXPECT_EQ(tag, 77U);
    EXPECT_EQ(ends_job, i == 1);
    EXPECT_EQ(segment.source, segments[i].source);
    EXPECT_EQ(segment.destination, segments[i].destination);
    EXPECT_EQ(segment.source_offset, segments[i].source_offset);
    EXPECT_EQ(segment.destination_offset, segments[i].destination_offset);
    EXPECT_EQ(segment.length, segments[i].length);
    EXPECT_EQ(segment.source_stride, segments[i].source_stride);
    EXPECT_EQ(segment.destination_stride, segments[i].destination_stride);
    EXPECT_EQ(segment.count, segments[i].count);
  }
  EXPECT_EQ(ring.Take(), RingTake::kEmpty);

  ASSERT_TRUE(ring.worker.Complete({77, 0, false, ErrorCode::kOutOfRange, 123}));
  Completion completion;
  ASSERT_EQ(ring.pool.TakeCompletion(&completion), RingTake::kEntry);
  EXPECT_EQ(completion.tag, 77U);
  EXPECT_FALSE(completion.ok);
  EXPECT_EQ(completion.code, ErrorCode::kOutOfRange);
  EXPECT_EQ(completion.copy_nanoseconds, 123U);
  EXPECT_EQ(ring.TakeCompletion(), RingTake::kEmpty);
}

TEST(WorkerRing, TakesAllSegmentsOfAJobOrNone) {
  Ring ring;
  EXPECT_FALSE(ring.pool.Submit(1, {}));
  const std::vector<CopySegment> too_many(kSubmissionSlots + 1);
  EXPECT_FALSE(ring.pool.Submit(1, too_many));
  const std::vector<CopySegment> nearly_all(kSubmissionSlots - 1);
  EXPECT_TRUE(ring.pool.Submit(1, nearly_all));
  EXPECT_EQ(ring.pool.free_slots(), 1U);
  EXPECT_FALSE(ring.pool.Submit(2, std::vector<CopySegment>(2)));
  // The worker tells every few segments, long before the job's end.
  for (int i = 0; i < 32; ++i) EXPECT_EQ(ring.Take(), RingTake::kEntry);
  EXPECT_TRUE(ring.pool.Submit(2, std::vector<CopySegment>(2)));
}

TEST(WorkerRing, TheEndOfAJobFreesAllItsSlots) {
  Ring ring;
  EXPECT_TRUE(ring.pool.Submit(1, std::vector<CopySegment>(3)));
  EXPECT_EQ(ring.pool.free_slots(), kSubmissionSlots - 3);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(ring.Take(), RingTake::kEntry);
  EXPECT_EQ(ring.pool.free_slots(), kSubmissionSlots);
}

TEST(WorkerRing, WorkerRefusesAnImpossibleHead) {
  for (const uint32_t ahead : {kSubmissionSlots + 1, 0x80000000U, ~0U}) {
    Ring ring;
    ring.memory->submission_head.value = kFirstIndex + ahead;
    EXPECT_EQ(ring.Take(), RingTake::kCorrupt) << ahead;
  }
}

TEST(WorkerRing, WorkerRefusesUnknownFlags) {
  Ring ring;
  ASSERT_TRUE(ring.pool.Submit(1, std::vector<CopySegment>(1)));
  ring.memory->submissions[kFirstSubmission].flags |= 2;
  EXPECT_EQ(ring.Take(), RingTake::kCorrupt);
}

TEST(WorkerRing, WorkerRefusesAJobThatChangesItsTag) {
  Ring ring;
  ASSERT_TRUE(ring.pool.Submit(1, std::vector<CopySegment>(2)));
  EXPECT_EQ(ring.Take(), RingTake::kEntry);
  ring.memory->submissions[kFirstSubmission + 1].tag = 2;
  EXPECT_EQ(ring.Take(), RingTake::kCorrupt);
}

TEST(WorkerRing, WorkerKeepsItsOwnIndices) {
  Ring ring;
  ASSERT_TRUE(ring.pool.Submit(1, std::vector<CopySegment>(1)));
  EXPECT_EQ(ring.Take(), RingTake::kEntry);
  ring.memory->submission_tail.value = kFirstIndex;  // would show the entry again
  EXPECT_EQ(ring.Take(), RingTake::kEmpty);
}

TEST(WorkerRing, WorkerRefusesAFullCompletionRing) {
  Ring ring;
  for (uint32_t i = 0; i < kCompletionSlots; ++i) ASSERT_TRUE(ring.worker.Complete({}));
  EXPECT_FALSE(ring.worker.Complete({}));
  Ring other;
  other.memory->completion_tail.value = kFirstIndex + 1;  // ahead of the head
  EXPECT_FALSE(other.worker.Complete({}));
}

TEST(WorkerRing, PoolRefusesAnImpossibleHead) {
  for (const uint32_t ahead : {kCompletionSlots + 1, 0x80000000U, ~0U}) {
    Ring ring;
    ring.memory->completion_head.value = kFirstIndex + ahead;
    EXPECT_EQ(ring.TakeCompletion(), RingTake::kCorrupt) << ahead;
  }
}

TEST(WorkerRing, PoolRefusesImpossibleOutcomes) {
  Ring ring;
  ASSERT_TRUE(ring.worker.Complete({}));
  ring.memory->completions[kFirstCompletion].ok = 2;
  EXPECT_EQ(ring.TakeCompletion(), RingTake::kCorrupt);
  ring.memory->completions[kFirstCompletion].ok = 0;
  ring.memory->completions[kFirstCompletion].code = kErrorCodeCount;
  EXPECT_EQ(ring.TakeCompletion(), RingTake::kCorrupt);
}

TEST(WorkerRing, PoolSeesAnImpossibleTail) {
  Ring ring;
  EXPECT_FALSE(ring.pool.corrupt());
  ring.memory->submission_tail.value = kFirstIndex + 1;  // ahead of the head
  EXPECT_TRUE(ring.pool.corrupt());
  EXPECT_EQ(ring.pool.free_slots(), 0U);
  EXPECT_FALSE(ring.pool.Submit(1, std::vector<CopySegment>(1)));
}

TEST(WorkerRing, RingsTheDoorbellOnlyWhenAskedAndOnce) {
  Ring ring;
  ASSERT_TRUE(ring.worker.Complete({}));
  EXPECT_EQ(ring.doorbell.sequence.value, 0U);
  ring.pool.RequestWake();
  ASSERT_TRUE(ring.worker.Complete({}));
  ASSERT_TRUE(ring.worker.Complete({}));
  EXPECT_EQ(ring.doorbell.sequence.value, 1U);
}

// The pool's thread as the engine runs it: submit while there is room, take, sleep.
uint64_t RunPoolSide(Ring& ring, uint64_t jobs) {
  std::minstd_rand random(7);
  std::deque<uint64_t> in_flight;
  uint64_t posted = 0;
  uint64_t taken = 0;
  while (taken < jobs) {
    while (posted < jobs && in_flight.size() < kCompletionSlots) {
      const std::vector<CopySegment> segments(1 + random() % 8, Numbered(posted));
      if (!ring.pool.Submit(posted, segments)) break;
      in_flight.push_back(posted++);
      if (random() % 64 == 0) break;
    }
    Completion completion;
    RingTake take = RingTake::kEmpty;
    while ((take = ring.pool.TakeCompletion(&completion)) == RingTake::kEntry) {
      EXPECT_EQ(completion.tag, in_flight.front());
      EXPECT_EQ(completion.copy_nanoseconds, completion.tag * 3);
      in_flight.pop_front();
      ++taken;
    }
    EXPECT_EQ(take, RingTake::kEmpty);
    if (taken == jobs || in_flight.empty()) continue;
    const uint32_t sequence = ring.doorbell.sequence.value.load();
    ring.pool.RequestWake();
    // No deadline to speak of: a wake-up that is lost hangs the test.
    if (!ring.pool.HasCompletion()) {
      FutexWait(ring.doorbell.sequence.value, sequence, Clock::now() + std::chrono::seconds(30));
    }
    ring.pool.CancelWake();
  }
  return taken;
}

TEST(WorkerRing, StressOfBothEndsWithSleeping) {
  Ring ring;
  std::atomic<bool> stop = false;
  std::thread worker([&] {
    const BoundedSpin spin{nanoseconds(0)};
    uint64_t tag = 0;
    CopySegment segment;
    bool ends_job = false;
    while (!stop.load()) {
      const RingTake take = ring.worker.TakeSegment(&tag, &segment, &ends_job);
      ASSERT_NE(take, RingTake::kCorrupt);
      if (take == RingTake::kEmpty) {
        ring.worker.WaitForSegment(spin, stop);
        continue;
      }
      ASSERT_EQ(segment.source_offset, tag);
      ASSERT_EQ(segment.count, static_cast<uint32_t>(tag) + 5);
      if (ends_job) {
        ASSERT_TRUE(ring.worker.Complete({tag, 0, true, {}, tag * 3}));
      }
    }
  });
  constexpr uint64_t kJobs = 100'000;  // goes round the ring a hundred times
  EXPECT_EQ(RunPoolSide(ring, kJobs), kJobs);
  stop = true;
  ring.worker.WakeWorker();
  worker.join();
}

// One job at a time, each meeting the worker on its way to sleep: a wake-up that is lost between
// its last look and its sleep hangs here.
TEST(WorkerRing, StressOfFallingAsleep) {
  Ring ring;
  std::atomic<bool> stop = false;
  std::thread worker([&] {
    const BoundedSpin spin{nanoseconds(0)};
    uint64_t tag = 0;
    CopySegment segment;
    bool ends_job = false;
    while (!stop.load()) {
      if (ring.worker.TakeSegment(&tag, &segment, &ends_job) == RingTake::kEntry) {
        ASSERT_TRUE(ring.worker.Complete({tag, 0, true, {}, 0}));
      } else {
        ring.worker.WaitForSegment(spin, stop);
      }
    }
  });
  const CopySegment segment;
  const TimePoint limit = Clock::now() + std::chrono::seconds(20);
  uint64_t done = 0;
  for (; done < 50'000 && Clock::now() < limit; ++done) {
    ASSERT_TRUE(ring.pool.Submit(done, {&segment, 1}));
    while (!ring.pool.HasCompletion() && Clock::now() < limit) continue;  // no pause: be close
    if (ring.TakeCompletion() != RingTake::kEntry) break;
  }
  EXPECT_EQ(ring.memory->submission_head.value, ring.memory->submission_tail.value)
      << "the worker sleeps over a job";
  stop = true;
  ring.worker.WakeWorker();
  worker.join();
}

TEST(WorkerRing, IndicesWrapAround) {
  Ring ring;
  static_assert(kFirstIndex > ~0U - 200);
  for (uint64_t i = 0; i < 300; ++i) {
    ASSERT_TRUE(ring.pool.Submit(i, std::vector<CopySegment>(1, Numbered(i))));
    ASSERT_EQ(ring.pool.free_slots(), kSubmissionSlots - 1);
    ASSERT_EQ(ring.Take(), RingTake::kEntry);
    ASSERT_TRUE(ring.worker.Complete({i, 0, true, {}, 0}));
    ASSERT_EQ(ring.TakeCompletion(), RingTake::kEntry);
    ASSERT_FALSE(ring.pool.corrupt());
  }
  EXPECT_LT(ring.memory->submission_head.value, 300U);
}

TEST(WorkerRing, PeekShowsWhatIsTakenNext) {
  Ring ring;
  EXPECT_FALSE(ring.worker.PeekSegment());
  ASSERT_TRUE(ring.pool.Submit(1, std::vector<CopySegment>{Numbered(1), Numbered(2)}));
  ASSERT_EQ(ring.Take(), RingTake::kEntry);
  const auto next = ring.worker.PeekSegment();
  ASSERT_TRUE(next);
  EXPECT_EQ(next->source_offset, Numbered(2).source_offset);
  EXPECT_EQ(next->destination, Numbered(2).destination);
  uint64_t tag = 0;
  CopySegment taken;
  bool ends_job = false;
  ASSERT_EQ(ring.worker.TakeSegment(&tag, &taken, &ends_job), RingTake::kEntry);
  EXPECT_EQ(taken.source_offset, next->source_offset);
  EXPECT_FALSE(ring.worker.PeekSegment()) << "there is nothing behind the last one";
}

CopySegment Listed(std::span<const BlockPlaces> places) {
  CopySegment segment;
  segment.source = {1, 2};
  segment.destination = {3, 4};
  segment.length = 64;
  segment.count = static_cast<uint32_t>(places.size());
  segment.places = places;
  segment.means = GpuMeans::kKernel;
  return segment;
}

TEST(WorkerRing, SaysWhatIsStreamed) {
  Ring ring;
  std::vector<CopySegment> job = {Numbered(1), Numbered(2), Numbered(3)};
  job[2].streamed = true;
  ASSERT_TRUE(ring.pool.Submit(7, job));
  for (int i = 0; i < 3; ++i) {
    uint64_t tag = 0;
    CopySegment segment;
    bool ends_job = false;
    ASSERT_EQ(ring.worker.TakeSegment(&tag, &segment, &ends_job), RingTake::kEntry);
    EXPECT_EQ(segment.streamed, i == 2);
  }
}

TEST(WorkerRing, CarriesThePlacesOfListedBlocks) {
  Ring ring;
  std::vector<BlockPlaces> places;
  for (uint64_t i = 0; i < 3000; ++i) places.push_back({i, ~i});
  for (int round = 0; round < 40; ++round) {  // over the end of the places, and again
    const std::vector<CopySegment> job = {Listed(places), Numbered(1), Listed({places.data(), 2})};
    ASSERT_TRUE(ring.pool.Submit(7, job));
    EXPECT_EQ(ring.pool.free_places(), kPlaceSlots - 3002);
    uint64_t tag = 0;
    CopySegment segment;
    bool ends_job = false;
    ASSERT_EQ(ring.worker.TakeSegment(&tag, &segment, &ends_job), RingTake::kEntry);
    ASSERT_EQ(segment.places.size(), places.size());
    EXPECT_EQ(segment.means, GpuMeans::kKernel);
    for (size_t i = 0; i < places.size(); ++i) {
      ASSERT_EQ(segment.places[i].source, places[i].source);
      ASSERT_EQ(segment.places[i].destination, places[i].destination);
    }
    ASSERT_EQ(ring.worker.TakeSegment(&tag, &segment, &ends_job), RingTake::kEntry);
    EXPECT_TRUE(segment.places.empty());
    EXPECT_EQ(segment.means, GpuMeans::kCopyEngine);
    ASSERT_EQ(ring.worker.TakeSegment(&tag, &segment, &ends_job), RingTake::kEntry);
    EXPECT_EQ(segment.places.size(), 2U);
    EXPECT_EQ(segment.places[1].source, 1U);
    EXPECT_TRUE(ends_job);
    EXPECT_EQ(ring.pool.free_places(), kPlaceSlots);
  }
}

TEST(WorkerRing, AJobWithoutRoomForItsPlacesIsNotPosted) {
  Ring ring;
  const std::vector<BlockPlaces> places(kPlaceSlots / 2 + 1);
  ASSERT_TRUE(ring.pool.Submit(1, std::vector<CopySegment>{Listed(places)}));
  EXPECT_FALSE(ring.pool.Submit(2, std::vector<CopySegment>{Listed(places)}));
  EXPECT_EQ(ring.Take(), RingTake::kEntry);
  EXPECT_EQ(ring.Take(), RingTake::kEmpty) << "nothing of it is there";
  EXPECT_TRUE(ring.pool.Submit(2, std::vector<CopySegment>{Listed(places)}));
}

TEST(WorkerRing, TheWorkerRefusesPlacesThatAreNotThere) {
  const std::vector<BlockPlaces> places(4);
  for (const uint32_t count : {0U, 5U, kPlaceSlots + 1, ~0U}) {
    Ring ring;
    ASSERT_TRUE(ring.pool.Submit(1, std::vector<CopySegment>{Listed(places)}));
    ring.memory->submissions[kFirstSubmission].count = count;
    EXPECT_EQ(ring.Take(), RingTake::kCorrupt) << count;
  }
  Ring ring;
  ASSERT_TRUE(ring.pool.Submit(1, std::vector<CopySegment>{Listed(places)}));
  ring.memory->place_head.value = kFirstIndex + kPlaceSlots + 1;
  EXPECT_EQ(ring.Take(), RingTake::kCorrupt);
}

TEST(WorkerRing, ThePoolSeesAWorkersImpossibleIndexOfPlaces) {
  Ring ring;
  ring.memory->place_tail.value = kFirstIndex + 1;
  EXPECT_EQ(ring.pool.free_places(), 0U);
  EXPECT_TRUE(ring.pool.corrupt());
}

}  // namespace
}  // namespace gantry::worker
