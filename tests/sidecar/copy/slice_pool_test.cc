#include "sidecar/copy/slice_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <set>
#include <thread>

namespace gantry::transport {
namespace {

const SlicePool::Granted kNobody = [](SliceLease) { FAIL() << "nobody had to wait"; };

TEST(SlicePool, HandsOutEachSliceOnceAndTakesItBack) {
  SlicePool pool(4);
  {
    auto some = pool.Take(3, kNobody);
    auto rest = pool.Take(1, kNobody);
    ASSERT_TRUE(some && rest);
    std::set<uint32_t> all(some->slices().begin(), some->slices().end());
    all.insert(rest->slices().begin(), rest->slices().end());
    EXPECT_EQ(all, (std::set<uint32_t>{0, 1, 2, 3}));
    EXPECT_EQ(pool.in_use(), 4u);
    SliceLease moved = *std::move(some);
    EXPECT_EQ(pool.in_use(), 4u);
    moved.Release();
    EXPECT_EQ(pool.in_use(), 1u);
  }
  EXPECT_EQ(pool.in_use(), 0u);
}

// Who needs much is not passed by those who need little, and gets all of it or none.
TEST(SlicePool, ServesThoseWhoWaitInTheirOrder) {
  SlicePool pool(4);
  std::vector<int> order;
  std::vector<SliceLease> leases;
  const auto take = [&](int who) {
    return [&order, &leases, who](SliceLease lease) {
      order.push_back(who);
      leases.push_back(std::move(lease));
    };
  };
  auto first = pool.Take(2, kNobody);
  auto second = pool.Take(1, kNobody);
  EXPECT_FALSE(pool.Take(4, take(1)));
  EXPECT_FALSE(pool.Take(1, take(2)));  // one is free, and meant for the one before
  EXPECT_FALSE(pool.Take(3, take(3)));
  second->Release();
  EXPECT_TRUE(order.empty());
  first->Release();
  EXPECT_EQ(order, (std::vector<int>{1}));
  ASSERT_EQ(leases.front().slices().size(), 4u);
  SliceLease all = std::move(leases.front());
  all.Release();
  EXPECT_EQ(order, (std::vector<int>{1, 2, 3}));
  EXPECT_EQ(pool.in_use(), 4u);
}

TEST(SlicePool, GivesAtOnceWhatIsFreeAndPassesNobodyWhoWaits) {
  SlicePool pool(4);
  SliceLease three = pool.TakeAtOnce(3);
  EXPECT_EQ(three.slices().size(), 3u);
  EXPECT_EQ(pool.in_use(), 3u);
  EXPECT_EQ(pool.TakeAtOnce(3).slices().size(), 1u);
  EXPECT_EQ(pool.TakeAtOnce(0).slices().size(), 0u);
  std::optional<SliceLease> later;
  EXPECT_FALSE(pool.Take(2, [&](SliceLease lease) { later = std::move(lease); }));
  EXPECT_EQ(pool.TakeAtOnce(1).slices().size(), 0u);
  three.Release();
  EXPECT_TRUE(later);
  EXPECT_EQ(pool.TakeAtOnce(9).slices().size(), 2u);
  EXPECT_EQ(pool.in_use(), 2u);
}

// Who has no use for it any more lets it go where it is granted: the next one gets it.
TEST(SlicePool, PassesOnWhatIsLetGoAtOnce) {
  SlicePool pool(1);
  auto held = pool.Take(1, kNobody);
  int given_up = 0;
  for (int i = 0; i < 1000; ++i) EXPECT_FALSE(pool.Take(1, [&](SliceLease) { ++given_up; }));
  SliceLease last;
  EXPECT_FALSE(pool.Take(1, [&](SliceLease lease) { last = std::move(lease); }));
  held->Release();
  EXPECT_EQ(given_up, 1000);
  EXPECT_EQ(last.slices().size(), 1u);
}

TEST(SlicePool, WhoIsCancelledIsForgottenAndThoseBehindItAreServed) {
  SlicePool pool(2);
  auto held = pool.Take(1, kNobody);
  const auto kept = std::make_shared<int>();
  uint64_t ticket = 0;
  SliceLease behind;
  EXPECT_FALSE(pool.Take(
      2, [kept](SliceLease) { FAIL() << "it was cancelled"; }, &ticket));
  EXPECT_FALSE(pool.Take(1, [&](SliceLease lease) { behind = std::move(lease); }));
  EXPECT_EQ(kept.use_count(), 2);
  pool.Cancel(ticket);
  EXPECT_EQ(kept.use_count(), 1);
  EXPECT_EQ(behind.slices().size(), 1u);
  pool.Cancel(ticket);
  held->Release();
  EXPECT_EQ(pool.in_use(), 1u);
}

TEST(SlicePool, ManyThreadsNeverHaveTheSameSlice) {
  constexpr uint32_t kSlices = 8;
  constexpr int kTurns = 2000;
  SlicePool pool(kSlices);
  std::array<std::atomic<int>, kSlices> owners = {};
  std::atomic<int> served = 0;
  const auto use = [&](SliceLease lease) {
    for (const uint32_t slice : lease.slices()) EXPECT_EQ(owners[slice].fetch_add(1), 0);
    for (const uint32_t slice : lease.slices()) owners[slice].fetch_sub(1);
    ++served;
  };
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      for (int i = 0; i < kTurns; ++i) {
        auto lease = pool.Take(static_cast<size_t>(1 + (i + thread) % 8), use);
        if (lease) use(*std::move(lease));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(served, 4 * kTurns);
  EXPECT_EQ(pool.in_use(), 0u);
}

}  // namespace
}  // namespace gantry::transport
