// What an initiator does when the owner takes buffers back.
#include <atomic>
#include <future>
#include <thread>

#include "tests/sidecar/peer/peer_directory_fixture.h"

namespace gantry::testing {
namespace {

using PeerRevocationTest = PeerDirectoryTest;

TEST_F(PeerRevocationTest, RevocationLetsRunningUsesEndThenUnmapsThenReleases) {
  const auto buffer = owner_->Register(arena_, "k.0");
  auto handles = *initiator_.Acquire("prefill", {"k.0"});
  std::atomic<size_t> mapped_at_release = 99;
  owner_mapper_.SetBeforeUnmap([&](memory::MappingId) { mapped_at_release = mapper_.live(); });
  auto removal = RemoveAsync(*buffer, 10'000);
  ASSERT_TRUE(Eventually(2'000, [&] { return !initiator_.Acquire("prefill", {"k.0"}); }));
  EXPECT_TRUE(Waits(removal, 100));
  EXPECT_EQ(mapper_.live(), 1u);
  EXPECT_TRUE(initiator_.stopped().empty()) << "it had time";
  handles.clear();
  EXPECT_TRUE(removal.get());
  EXPECT_EQ(mapped_at_release, 0u) << "the owner let go before the peer had unmapped";
}

TEST_F(PeerRevocationTest, RevocationStopsTransfersBeforeItsDeadline) {
  const auto buffer = owner_->Register(arena_, "k.0");
  auto handles = *initiator_.Acquire("prefill", {"k.0"});
  const TimePoint begin = Clock::now();
  auto removal = RemoveAsync(*buffer, 2'000);
  ASSERT_TRUE(Eventually(2'000, [&] { return !initiator_.stopped().empty(); }));
  EXPECT_GE(Clock::now() - begin, milliseconds(1'400));
  EXPECT_EQ(initiator_.stopped().front().why.code, ErrorCode::kDraining);
  handles.clear();
  EXPECT_TRUE(removal.get());
}

TEST_F(PeerRevocationTest, AUseThatDoesNotEndMakesRevocationFailAndLaterSucceed) {
  const auto buffer = owner_->Register(arena_, "k.0");
  auto handles = *initiator_.Acquire("prefill", {"k.0"});
  const Status removed = RemoveAsync(*buffer, 200).get();
  ASSERT_FALSE(removed);
  EXPECT_EQ(removed.error().code, ErrorCode::kDeadlineExceeded);
  EXPECT_NE(removed.error().message.find("decode"), std::string::npos) << removed.error().message;
  EXPECT_EQ(mapper_.live(), 1u);
  EXPECT_EQ(owner_mapper_.live(), 1u);
  handles.clear();
  EXPECT_TRUE(RemoveAsync(*buffer, 5'000).get());
  EXPECT_EQ(mapper_.live(), 0u);
}

TEST_F(PeerRevocationTest, OtherBuffersOfTheAllocationOutliveARevocation) {
  const auto buffers =
      owner_->Register({&arena_}, {{"k.0", {{0, 0, 4096}}}, {"k.1", {{0, 4096, 4096}}}});
  ASSERT_TRUE(initiator_.Acquire("prefill", {"k.0", "k.1"}));
  EXPECT_TRUE(owner_->registry().Remove(buffers[0]->description().id, In(5'000)));
  EXPECT_EQ(mapper_.live(), 1u);
  EXPECT_TRUE(initiator_.Acquire("prefill", {"k.1"}));
  EXPECT_TRUE(owner_->registry().Remove(buffers[1]->description().id, In(5'000)));
  EXPECT_EQ(mapper_.live(), 0u);
}

TEST_F(PeerRevocationTest, SuspendUnmapsHereToo) {
  const auto buffer = owner_->Register(arena_, "k.0");
  ASSERT_TRUE(initiator_.Acquire("prefill", {"k.0"}));
  ASSERT_TRUE(owner_->registry().Suspend(buffer->description().id, In(5'000)));
  EXPECT_EQ(mapper_.live(), 0u);
  EXPECT_EQ(initiator_.Acquire("prefill", {"k.0"}).error().code, ErrorCode::kDraining);
  ASSERT_TRUE(owner_->registry().Resume(buffer->description().id));
  const auto handles = initiator_.Acquire("prefill", {"k.0"});
  EXPECT_TRUE(handles) << handles.error().message;
}

TEST_F(PeerRevocationTest, AfterAResumeTheAcknowledgementIsWaitedFor) {
  const auto buffer = owner_->Register(arena_, "k.0");
  auto in_use = *initiator_.Acquire("prefill", {"k.0"});
  ASSERT_FALSE(owner_->registry().Suspend(buffer->description().id, In(50)));
  ASSERT_TRUE(owner_->registry().Resume(buffer->description().id));
  auto acquired =
      std::async(std::launch::async, [this] { return initiator_.Acquire("prefill", {"k.0"}); });
  EXPECT_EQ(acquired.wait_for(milliseconds(50)), std::future_status::timeout);
  in_use.clear();
  const auto handles = acquired.get();
  EXPECT_TRUE(handles) << handles.error().message;
}

TEST_F(PeerRevocationTest, AnAcknowledgementThatDoesNotComeIsWaitedForOnlyShortly) {
  const auto buffer = owner_->Register(arena_, "k.0");
  const auto in_use = *initiator_.Acquire("prefill", {"k.0"});
  ASSERT_FALSE(owner_->registry().Suspend(buffer->description().id, In(50)));
  ASSERT_TRUE(owner_->registry().Resume(buffer->description().id));
  const TimePoint begin = Clock::now();
  EXPECT_EQ(initiator_.Acquire("prefill", {"k.0"}).error().code, ErrorCode::kDraining);
  EXPECT_LT(Clock::now() - begin, milliseconds(2'000));
  EXPECT_EQ(initiator_.Acquire("prefill", {"k.0"}, 0, 0).error().code,
            ErrorCode::kDeadlineExceeded);
}

// The neighbour keeps the allocation mapped, so that a buffer that comes back needs no descriptor.
TEST_F(PeerRevocationTest, NoReaderKeepsABufferThatCameBackAndWasRemoved) {
  owner_->Register({&arena_}, {{"neighbour", {{0, 0, 4096}}}});
  const auto neighbour = initiator_.Acquire("prefill", {"neighbour"});
  ASSERT_TRUE(neighbour);
  std::atomic<bool> stop = false;
  std::vector<std::jthread> readers;
  for (int i = 0; i < 4; ++i) {
    readers.emplace_back([&] {
      while (!stop) {
        (void)initiator_.Acquire("prefill", {"k.0"});
        std::this_thread::sleep_for(microseconds(200));
      }
    });
  }
  const TimePoint end = In(3'000);
  for (int round = 0; Clock::now() < end; ++round) {
    const auto buffers = owner_->Register({&arena_}, {{"k.0", {{0, 8192, 4096}}}});
    const std::string id = buffers.front()->description().id;
    for (int i = 0; i < 6; ++i) {
      std::jthread suspension([&] { (void)owner_->registry().Suspend(id, In(500)); });
      std::this_thread::sleep_for(microseconds(500 * (round % 5)));
      (void)owner_->registry().Resume(id);
      suspension.join();
      (void)owner_->registry().Resume(id);
      std::this_thread::sleep_for(milliseconds(1));
    }
    const Status removed = owner_->registry().Remove(id, In(5'000));
    EXPECT_TRUE(removed) << removed.error().message;
    const auto left = initiator_.Acquire("prefill", {"k.0"});
    EXPECT_FALSE(left) << "in round " << round;
    if (!removed || left) break;
  }
  stop = true;
  readers.clear();
}

}  // namespace
}  // namespace gantry::testing
