// A job that is rehearsed is written where the next one will be, and its worker sees nothing of it.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "sidecar/worker/worker_ring.h"

namespace gantry::worker {
namespace {

struct RingRehearsal : ::testing::Test {
  static CopySegment Listed(uint64_t number, const std::vector<BlockPlaces>& places) {
    CopySegment segment;
    segment.source_offset = number;
    segment.length = 64;
    segment.count = std::max<uint32_t>(1, static_cast<uint32_t>(places.size()));
    segment.places = places;
    return segment;
  }
  RingTake Take() { return worker.TakeSegment(&tag, &taken, &ends_job); }

  std::unique_ptr<RingLayout> memory = std::make_unique<RingLayout>();
  Doorbell doorbell = {};
  PoolRingEnd pool{InitializeRing(memory.get())};
  WorkerRingEnd worker{memory.get(), &doorbell};
  uint64_t tag = 0;
  CopySegment taken;
  bool ends_job = false;
};

TEST_F(RingRehearsal, TheWorkerSeesWhatIsSubmittedAlone) {
  const std::vector<BlockPlaces> rehearsed = {{1, 2}, {3, 4}, {5, 6}};
  const std::vector<BlockPlaces> real = {{7, 8}, {9, 10}}, none;
  memory->worker_sleeps.value = 1;
  // Over the ends of both lists, and again.
  for (uint64_t round = 0; round < kPlaceSlots + kSubmissionSlots; ++round) {
    const std::vector<CopySegment> other = {Listed(1, rehearsed), Listed(2, {}),
                                            Listed(3, rehearsed)};
    ASSERT_TRUE(pool.Rehearse(5, other));
    ASSERT_EQ(pool.free_slots(), kSubmissionSlots);
    ASSERT_EQ(pool.free_places(), kPlaceSlots);
    ASSERT_FALSE(worker.HasSegment());
    ASSERT_EQ(Take(), RingTake::kEmpty);
    ASSERT_EQ(memory->worker_sleeps.value, 1U) << "the worker was woken";

    const CopySegment job = Listed(round, round % 3 == 0 ? none : real);
    ASSERT_TRUE(pool.Submit(round, {&job, 1}));
    memory->worker_sleeps.value = 1;
    ASSERT_TRUE(pool.Rehearse(6, other));
    ASSERT_EQ(Take(), RingTake::kEntry);
    ASSERT_EQ(tag, round);
    ASSERT_EQ(taken.source_offset, round);
    ASSERT_TRUE(ends_job);
    ASSERT_EQ(taken.places.size(), job.places.size());
    for (size_t i = 0; i < taken.places.size(); ++i) {
      ASSERT_EQ(taken.places[i].source, real[i].source);
      ASSERT_EQ(taken.places[i].destination, real[i].destination);
    }
    ASSERT_EQ(Take(), RingTake::kEmpty);
  }
}

TEST_F(RingRehearsal, ItTakesTheRoomOfAJob) {
  const std::vector<CopySegment> most(kSubmissionSlots, Listed(1, {}));
  EXPECT_TRUE(pool.Rehearse(1, most));
  const CopySegment one = Listed(2, {});
  ASSERT_TRUE(pool.Submit(2, {&one, 1}));
  EXPECT_FALSE(pool.Rehearse(3, most));
  EXPECT_FALSE(pool.Rehearse(3, {}));
  const std::vector<BlockPlaces> places(kPlaceSlots);
  const CopySegment listed = Listed(3, places);
  ASSERT_TRUE(pool.Submit(4, {&listed, 1}));
  const std::vector<BlockPlaces> another(1);
  const CopySegment more = Listed(4, another);
  EXPECT_FALSE(pool.Rehearse(5, {&more, 1}));
}

}  // namespace
}  // namespace gantry::worker
