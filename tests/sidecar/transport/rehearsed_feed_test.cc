// A plan that is rehearsed goes the way of one that is moved, and leaves no trace of it.
#include "tests/sidecar/transport/gpu_feed_fixture.h"

namespace gantry::transport {
namespace {

constexpr auto kHost = wire::MemoryKind::kHost;
constexpr auto kGpu = wire::MemoryKind::kGpu;

// Of two workers, which it counts the looks at.
class LookedAtPool final : public worker::DrivenCopyPool {
 public:
  int worker_count() const override { return 2; }
  bool usable(int worker) const override {
    ++looks;
    return worker >= first_usable;
  }
  int gpu_of(int /*worker*/) const override { return 0; }
  bool reaches(int /*worker*/, int /*gpu*/) const override { return true; }
  size_t free_slots(int worker) const override { return usable(worker) ? kSlots : 0; }
  size_t free_places(int worker) const override { return usable(worker) ? places : 0; }
  bool Post(int /*worker*/, uint64_t /*tag*/, std::span<const CopySegment> /*segments*/) override {
    ++posted;
    return false;
  }
  size_t Poll(std::span<Completion> /*completions*/) override { return 0; }

  mutable int looks = 0;
  int posted = 0;
  int first_usable = 0;
  size_t places = kSlots;
};

class RehearsedFeedTest : public GpuFeedTest, public ::testing::WithParamInterface<bool> {
 protected:
  static wire::MemoryKind Kind() { return GetParam() ? kGpu : kHost; }
};

TEST_P(RehearsedFeedTest, TheWorkersAreLookedAtAndGetNothing) {
  LookedAtPool pool;
  ShmTransport transport({}, pool);
  for (const uint32_t blocks : {1u, 128u}) {
    pool.looks = 0;
    transport.Rehearse(Plan(Kind(), blocks), 0);
    EXPECT_GT(pool.looks, 4);
    EXPECT_EQ(pool.posted, 0);
    EXPECT_FALSE(transport.DevicesWork());
    std::vector<uint64_t> attention;
    EXPECT_FALSE(transport.Poll(&attention));
    EXPECT_TRUE(attention.empty());
    EXPECT_EQ(pool.posted, 0);
  }
}

TEST_P(RehearsedFeedTest, WhatIsMovedBesideAndAfterwardsIsPostedAsItWouldBe) {
  const auto post = [&](bool rehearses) {
    HandPool pool(3);
    ShmTransport transport({}, pool);
    std::vector<uint64_t> attention;
    const auto first = transport.Start(Plan(Kind(), 700), 0, 1);
    const auto rehearse = [&](uint32_t blocks) {
      for (int i = 0; rehearses && i < 5'000; ++i) transport.Rehearse(Plan(Kind(), blocks), 3);
    };
    rehearse(1);
    transport.Poll(&attention);
    rehearse(1);  // beside what moves
    while (!first->finished()) {
      transport.Poll(&attention);
      pool.FinishOneEach();
    }
    rehearse(100);
    const auto second = transport.Start(Plan(Kind(), 700), 0, 2);
    EXPECT_TRUE(pool.roused.empty());
    EXPECT_FALSE(transport.DevicesWork());
    for (int i = 0; i < 100; ++i) {
      transport.Poll(&attention);
      pool.FinishOneEach();
    }
    EXPECT_TRUE(first->finished() && second->finished());
    EXPECT_EQ(attention.size(), 2u);
    return pool.copied;
  };
  EXPECT_EQ(post(true), post(false));
}

// A kernel that was rehearsed is no kernel that was quick.
TEST_F(GpuFeedTest, WhatIsRehearsedSaysNothingOfAGpu) {
  static TimePoint now;
  const auto reasons = [&](bool rehearses) {
    now = Clock::now();
    ShmOptions options;
    options.now = [] { return now; };
    HandPool pool(3);
    ShmTransport transport(options, pool);
    std::vector<uint64_t> attention;
    const auto move = [&] {
      const auto operation = transport.Start(Plan(kGpu, 700), 0, 1);
      while (!operation->finished()) {
        transport.Poll(&attention);
        for (const int worker : {0, 1, 2}) pool.Finish(worker, true, milliseconds(5));
      }
      return operation->progress().gpu_jobs_by_reason;
    };
    move();
    for (int i = 0; i < 50; ++i) {
      now += milliseconds(10);
      if (rehearses) {
        EXPECT_NE(transport.Rehearse(Plan(kGpu, 100), 0), nullptr);
      }
    }
    return move();
  };
  const auto as_if_alone = reasons(false);
  EXPECT_EQ(as_if_alone[static_cast<size_t>(GpuCopyReason::kIdle)], 0u) << "its kernel was slow";
  EXPECT_EQ(reasons(true), as_if_alone);
}

TEST_P(RehearsedFeedTest, ItsOperationIsAsOneThatMovedAll) {
  HandPool pool(2);
  ShmTransport transport({}, pool);
  std::vector<uint64_t> attention;
  const auto plan = Plan(Kind(), 100);
  const auto moved = transport.Start(plan, 0, 1);
  while (!moved->finished()) {
    transport.Poll(&attention);
    pool.FinishOneEach();
  }
  const auto rehearsed = transport.Rehearse(plan, 0);
  ASSERT_NE(rehearsed, nullptr);
  EXPECT_TRUE(rehearsed->finished());
  EXPECT_FALSE(rehearsed->error());
  const Progress& is = rehearsed->progress();
  const Progress& was = moved->progress();
  EXPECT_EQ(is.bytes, was.bytes);
  EXPECT_EQ(is.chunks, was.chunks);
  EXPECT_EQ(is.chunks_total, was.chunks_total);
  EXPECT_EQ(is.chunks_retried, 0u);
  EXPECT_EQ(is.gpu_jobs_by_engine + is.gpu_jobs_by_kernel > 0, GetParam());
  EXPECT_GE(is.workers, 1);
  EXPECT_TRUE(is.first_posted);
  EXPECT_TRUE(rehearsed->UnfinishedItems().empty());
  attention.clear();
  EXPECT_FALSE(transport.Poll(&attention)) << "its end reaches nobody";
}

TEST_P(RehearsedFeedTest, BesideWhatMovesThereIsNone) {
  HandPool pool(2);
  ShmTransport transport({}, pool);
  std::vector<uint64_t> attention;
  const auto waits = transport.Start(Plan(Kind(), 8), 0, 1);
  EXPECT_EQ(transport.Rehearse(Plan(Kind(), 8), 0), nullptr);
  transport.Poll(&attention);
  EXPECT_EQ(transport.Rehearse(Plan(Kind(), 8), 0), nullptr) << "its jobs are in flight";
  pool.FinishOneEach();
  transport.Poll(&attention);
  EXPECT_TRUE(waits->finished());
  EXPECT_NE(transport.Rehearse(Plan(Kind(), 8), 0), nullptr);
}

TEST_P(RehearsedFeedTest, ItEndsWhereNobodyCouldCopyOrThereIsNoRoom) {
  LookedAtPool pool;
  ShmTransport transport({}, pool);
  pool.first_usable = 2;
  EXPECT_EQ(transport.Rehearse(Plan(Kind(), 8), 0), nullptr);
  pool.first_usable = 1;
  pool.places = 1;
  transport.Rehearse(Plan(Kind(), 8), 0);
  pool.places = 0;
  EXPECT_EQ(transport.Rehearse(Plan(Kind(), 8), 0) == nullptr, GetParam());
  EXPECT_EQ(pool.posted, 0);
}

TEST_P(RehearsedFeedTest, WhatTakesLongerThanItSavesIsLeftOut) {
  LookedAtPool pool;
  ShmTransport transport({}, pool);
  auto plan = Plan(Kind(), 8);
  plan->bytes = (1 << 20) + 1;
  EXPECT_EQ(transport.Rehearse(plan, 0), nullptr);
  EXPECT_EQ(transport.Rehearse(Plan(Kind(), 129), 0), nullptr);
  EXPECT_EQ(pool.looks, 0);
}

INSTANTIATE_TEST_SUITE_P(Memory, RehearsedFeedTest, ::testing::Bool(),
                         [](const auto& memory) { return memory.param ? "OfGpus" : "OfTheHost"; });

}  // namespace
}  // namespace gantry::transport
