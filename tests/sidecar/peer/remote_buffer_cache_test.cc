#include "sidecar/peer/link/remote_buffer_cache.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace gantry::peer {
namespace {

using engine::RemoteUse;
using Handles = std::vector<RemoteBufferCache::Handle>;

wire::BufferReference Named(const std::string& name, uint64_t generation = 0) {
  wire::BufferReference reference;
  reference.peer = "p";
  reference.workload = "w";
  reference.buffer = name;
  reference.generation = generation;
  return reference;
}

class RemoteBufferCacheTest : public ::testing::Test {
 protected:
  void Add(const std::string& name, uint64_t generation, bool mapped = true) {
    engine::RemoteBuffer buffer;
    buffer.reference = Named(name, generation);
    buffer.mapped = mapped;
    auto lease = std::make_shared<int>();
    leases_[generation] = lease;
    cache_->Add(std::move(buffer), std::move(lease));
  }
  // Of those that are there, by generation.
  Handles Get(const std::vector<wire::BufferReference>& references,
              RemoteUse use = RemoteUse::kMove) {
    Handles handles;
    missing_ = cache_->Acquire(references, use, &handles);
    return handles;
  }
  void Retire(uint64_t generation, TimePoint stop_at = TimePoint::max()) {
    cache_->Retire(generation, stop_at, Error(ErrorCode::kStaleGeneration, "taken back"));
  }
  // What the loop of a link does.
  size_t Drop() { return cache_->TakeDue(Clock::now()).unused.size(); }
  bool IsThere(uint64_t generation) const { return !leases_.at(generation).expired(); }

  int rung_ = 0;
  std::unique_ptr<RemoteBufferCache> cache_ =
      std::make_unique<RemoteBufferCache>([this] { ++rung_; });
  std::map<uint64_t, std::weak_ptr<int>> leases_;
  std::vector<size_t> missing_;
};

TEST_F(RemoteBufferCacheTest, GivesOutWhatIsThereAndFits) {
  Add("a", 1);
  Add("b", 2, false);
  const auto handles = Get({Named("b"), Named("a", 7), Named("a", 1), Named("c"), Named("a")});
  EXPECT_EQ(missing_, (std::vector<size_t>{0, 1, 3}));
  EXPECT_EQ(handles[0], nullptr);
  EXPECT_EQ(handles[2]->reference.generation, 1u);
  EXPECT_EQ(handles[4], handles[2]);
  Get({Named("b")}, RemoteUse::kName);
  EXPECT_TRUE(missing_.empty());
}

TEST_F(RemoteBufferCacheTest, ARetiredBufferStaysWhileAHandleThatWasGivenOutWithItIsKept) {
  Add("a", 1);
  Add("b", 2);
  Add("c", 3);
  auto both = Get({Named("a"), Named("b")});
  auto again = Get({Named("a")});
  for (const uint64_t generation : {1, 2, 3}) Retire(generation);
  EXPECT_EQ(cache_->size(), 0u);
  EXPECT_EQ(Drop(), 1u) << "nobody uses c";
  EXPECT_FALSE(IsThere(3));
  both.erase(both.begin());
  again.clear();
  EXPECT_EQ(Drop(), 0u);
  EXPECT_TRUE(IsThere(1) && IsThere(2));
  EXPECT_EQ(both.front()->reference.buffer, "b");
  EXPECT_EQ(rung_, 0);
  both.clear();
  EXPECT_EQ(rung_, 1);
  EXPECT_TRUE(cache_->Holds(1)) << "until it is unmapped";
  EXPECT_EQ(Drop(), 2u);
  EXPECT_FALSE(cache_->Holds(1) || IsThere(1) || IsThere(2));
}

TEST_F(RemoteBufferCacheTest, OneThatIsNamedTwiceIsUsedTwice) {
  Add("a", 1);
  auto handles = Get({Named("a"), Named("a")});
  Retire(1);
  handles.pop_back();
  EXPECT_EQ(Drop(), 0u);
  handles.clear();
  EXPECT_EQ(Drop(), 1u);
}

TEST_F(RemoteBufferCacheTest, WhatIsUsableIsNobodysBusinessWhenItsLastHandleGoes) {
  Add("a", 1);
  Get({Named("a")}).clear();
  EXPECT_EQ(rung_, 0);
  EXPECT_EQ(Drop(), 0u);
  EXPECT_FALSE(Get({Named("a")})[0] == nullptr);
  Add("b", 2);
  auto both = Get({Named("a"), Named("b")});
  Retire(1);
  both.clear();
  EXPECT_EQ(rung_, 1) << "for a alone";
}

TEST_F(RemoteBufferCacheTest, OneThatIsRegisteredAnewIsAnother) {
  Add("a", 1);
  const auto old = Get({Named("a")});
  Add("a", 2);
  EXPECT_EQ(Get({Named("a")})[0]->reference.generation, 2u);
  EXPECT_EQ(old[0]->reference.generation, 1u);
  EXPECT_EQ(cache_->retired(), 1u);
}

TEST_F(RemoteBufferCacheTest, WhoUsesOneTooLongIsToldOf) {
  Add("a", 1);
  Add("b", 2);
  auto handles = Get({Named("a"), Named("b")});
  const TimePoint now = Clock::now();
  Retire(1, now);
  Retire(2, now + milliseconds(60'000));
  {
    const auto due = cache_->TakeDue(now);
    ASSERT_EQ(due.overdue.size(), 1u);
    EXPECT_EQ(due.overdue[0].buffer, handles[0]);
    EXPECT_EQ(due.overdue[0].why.message, "taken back");
    EXPECT_EQ(due.next, now + milliseconds(60'000));
    handles.clear();
    EXPECT_EQ(rung_, 1) << "for b: a is looked at";
    EXPECT_EQ(cache_->TakeDue(now).unused.size(), 1u);
  }
  EXPECT_EQ(rung_, 2);
  EXPECT_EQ(Drop(), 1u);
}

TEST_F(RemoteBufferCacheTest, HandlesOutliveIt) {
  Add("a", 1);
  auto handles = Get({Named("a")});
  cache_->RetireAll(TimePoint::max(), Error(ErrorCode::kPeerLost, "gone"));
  cache_.reset();
  EXPECT_TRUE(IsThere(1));
  EXPECT_EQ(handles[0]->reference.buffer, "a");
  handles.clear();
  EXPECT_EQ(rung_, 1);
  EXPECT_FALSE(IsThere(1));
}

}  // namespace
}  // namespace gantry::peer
