// Unpublish, drain, then release (invariant 5), stale is refused (6), the owner may be dead (3).
#include <gmock/gmock.h>

#include <thread>

#include "tests/sidecar/registry/registry_fixture.h"

namespace gantry::registry {
namespace {

using ::testing::HasSubstr;

class BufferRemovalTest : public RegistryFixture {
 protected:
  BufferRemovalTest() { registry_.SetRevocationSink(&peers_); }

  FakePeers peers_;
};

// Invariant 5: unpublished before peers are told, told before it is released.
TEST_F(BufferRemovalTest, UnpublishesThenTellsPeersThenReleases) {
  const auto buffer = RegisterWhole("k");
  int steps = 0;
  peers_.on_revoke = [&](const Buffer& revoked) {
    EXPECT_EQ(&revoked, buffer.get());
    EXPECT_EQ(++steps, 1);
    EXPECT_TRUE(FailsWith(registry_.ByName(owner_.name, "k"), ErrorCode::kUnregistered));
    EXPECT_TRUE(FailsWith(registry_.Acquire(owner_.name, "k", 0), ErrorCode::kUnregistered));
    EXPECT_TRUE(FailsWith(buffer->Acquire(), ErrorCode::kDraining));
    EXPECT_EQ(mapper_.live(), 1u);
  };
  mapper_.SetBeforeUnmap([&](memory::MappingId) { EXPECT_EQ(++steps, 2); });
  EXPECT_TRUE(registry_.Remove(buffer->description().id, Later()));
  EXPECT_EQ(steps, 2);
  EXPECT_EQ(buffer->state(), BufferState::kGone);
  EXPECT_TRUE(FailsWith(registry_.ById(buffer->description().id), ErrorCode::kNotFound));
}

// Invariant 5: nothing is unmapped under a running copy.
TEST_F(BufferRemovalTest, NothingIsUnmappedWhileAUseLives) {
  const auto buffer = RegisterWhole("k");
  auto use = registry_.Acquire(owner_.name, "k", 0, "transfer-7");
  ASSERT_TRUE(use);
  const memory::MappingId mapping = use->allocations()[0]->mapping();

  const Status late = registry_.Remove(buffer->description().id, Soon());
  ASSERT_TRUE(FailsWith(late, ErrorCode::kDeadlineExceeded));
  EXPECT_THAT(late.error().message, HasSubstr("transfer-7"));
  EXPECT_TRUE(mapper_.IsLive(mapping));
  EXPECT_EQ(buffer->state(), BufferState::kDraining);
  EXPECT_EQ(registry_.ById(buffer->description().id)->get(), buffer.get());

  std::atomic<bool> ended = false;
  std::thread copy([&, moved = std::move(*use)]() mutable {
    const Buffer::Use running = std::move(moved);
    std::this_thread::sleep_for(milliseconds(30));
    EXPECT_TRUE(mapper_.IsLive(mapping));
    ended = true;
  });
  EXPECT_TRUE(registry_.Remove(buffer->description().id, Later()));
  EXPECT_TRUE(ended);
  EXPECT_FALSE(mapper_.IsLive(mapping));
  copy.join();
}

TEST_F(BufferRemovalTest, WaitsForAllUsesAndNamesSomeOfThem) {
  const auto buffer = RegisterWhole("k");
  std::vector<Buffer::Use> uses;
  for (int i = 0; i < 6; ++i) {
    uses.push_back(*buffer->Acquire("transfer-" + std::to_string(i)));
  }
  EXPECT_EQ(buffer->uses(), 6u);
  while (!uses.empty()) {
    const Status status = registry_.Remove(buffer->description().id, Soon());
    ASSERT_TRUE(FailsWith(status, ErrorCode::kDeadlineExceeded));
    EXPECT_THAT(status.error().message, HasSubstr(std::to_string(uses.size()) + " running uses"));
    uses.pop_back();
  }
  EXPECT_TRUE(registry_.Remove(buffer->description().id, Soon()));
  EXPECT_EQ(mapper_.live(), 0u);
}

TEST_F(BufferRemovalTest, PeerThatDoesNotConfirmKeepsItDrainingAndIsNamed) {
  const auto buffer = RegisterWhole("k");
  peers_.unconfirmed = {"decode-3"};
  const Status status = registry_.Remove(buffer->description().id, Clock::now());
  ASSERT_TRUE(FailsWith(status, ErrorCode::kDeadlineExceeded));
  EXPECT_THAT(status.error().message, HasSubstr("decode-3"));
  EXPECT_EQ(mapper_.live(), 1u);
  EXPECT_TRUE(FailsWith(registry_.FinishRemovals(Soon()), ErrorCode::kDeadlineExceeded));
  peers_.unconfirmed.clear();
  EXPECT_TRUE(registry_.FinishRemovals(Soon()));
  EXPECT_EQ(mapper_.live(), 0u);
  EXPECT_EQ(registry_.Totals().buffers, 0u);
}

// Also of a failure, and with the worst outcome that a peer has of all buffers.
TEST_F(BufferRemovalTest, SaysWhatBecameOfItAtEachPeer) {
  const auto first = RegisterWhole("first");
  const auto second = RegisterWhole("second");
  peers_.settled = {{"decode-1", 5, wire::Path::kShm, PeerOutcome::kDrained},
                    {"decode-2", 6, wire::Path::kTcp, PeerOutcome::kCutOff}};
  peers_.unconfirmed_of["first"] = {"decode-3"};
  const auto text = [](const std::vector<PeerRelease>& releases) {
    std::string all;
    for (const PeerRelease& release : releases) {
      all += release.peer + "@" + std::to_string(release.generation) + " ";
      all += std::string(wire::NameOf(release.path)) + " " + std::string(NameOf(release.outcome));
      all += "; ";
    }
    return all;
  };
  std::vector<PeerRelease> peers;
  EXPECT_TRUE(FailsWith(registry_.SuspendAll({first, second}, Soon(), &peers),
                        ErrorCode::kDeadlineExceeded));
  EXPECT_EQ(text(peers),
            "decode-1@5 shm drained; decode-2@6 tcp cut_off; decode-3@7 shm holding; ");
  EXPECT_THAT(peers_.calls, ::testing::ElementsAre(2u)) << "of all at once";
  EXPECT_EQ(second->state(), BufferState::kSuspended);
  EXPECT_TRUE(registry_.Remove(second->description().id, Soon(), &peers));
  EXPECT_EQ(text(peers), "decode-1@5 shm drained; decode-2@6 tcp cut_off; ");
  const Status held = registry_.Remove(first->description().id, Soon(), &peers);
  ASSERT_TRUE(FailsWith(held, ErrorCode::kDeadlineExceeded));
  EXPECT_THAT(held.error().message, HasSubstr("(decode-3)")) << "those that hold it and no others";
  EXPECT_EQ(text(peers),
            "decode-1@5 shm drained; decode-2@6 tcp cut_off; decode-3@7 shm holding; ");
  peers_.unconfirmed_of.clear();
  EXPECT_TRUE(registry_.FinishRemovals(Soon()));
}

// One peer that stands still holds only what it has.
TEST_F(BufferRemovalTest, OthersAreReleasedThoughAPeerDoesNotConfirmOne) {
  for (const char* name : {"a", "held", "z"}) RegisterWhole(name);
  peers_.unconfirmed_of["held"] = {"decode-3"};
  const Status status = registry_.RemoveAll(owner_.name, 0, Clock::now());
  ASSERT_TRUE(FailsWith(status, ErrorCode::kDeadlineExceeded));
  EXPECT_THAT(status.error().message, HasSubstr("'held'"));
  EXPECT_EQ(mapper_.live(), 1u);
  EXPECT_EQ(registry_.Totals().buffers, 1u);
  peers_.unconfirmed_of.clear();
  EXPECT_TRUE(registry_.FinishRemovals(Soon()));
  EXPECT_EQ(mapper_.live(), 0u);
}

TEST_F(BufferRemovalTest, ARemovalThatHasTimeLeftIsNotFinishedByOthers) {
  const auto buffer = RegisterWhole("k");
  auto use = buffer->Acquire("transfer-1");
  std::thread removes([&] { EXPECT_TRUE(registry_.Remove(buffer->description().id, Later())); });
  while (buffer->state() != BufferState::kDraining) std::this_thread::yield();
  EXPECT_TRUE(
      FailsWith(registry_.Remove(buffer->description().id, Soon()), ErrorCode::kDeadlineExceeded));
  const size_t told = peers_.calls.size();
  EXPECT_TRUE(registry_.FinishRemovals(Soon())) << "the longer time counts";
  EXPECT_EQ(peers_.calls.size(), told);
  { const auto ended = std::move(use); }
  removes.join();
  EXPECT_EQ(mapper_.live(), 0u);
}

// What a restarted workload leaves behind is removed by the end of its old registration.
TEST_F(BufferRemovalTest, HousekeepingLeavesTheEndOfAWorkloadItsTime) {
  const auto old = RegisterWhole("k");
  const auto use = old->Acquire("transfer-1");
  end_deadline_ = Later();
  registry_.Close();  // so that the end does not wait here
  owner_ = *workloads_.Put(owner_.name, "engine, restarted", ::getuid(), std::nullopt);
  RegisterWhole("k");
  const size_t told = peers_.calls.size();
  EXPECT_TRUE(registry_.FinishRemovals(Soon()));
  EXPECT_EQ(peers_.calls.size(), told);
}

TEST_F(BufferRemovalTest, CloseEndsTheWaits) {
  const auto removed = RegisterWhole("removed");
  const auto suspended = RegisterWhole("suspended");
  const auto uses = std::make_pair(removed->Acquire("one"), suspended->Acquire("two"));
  const TimePoint begin = Clock::now();
  std::thread removes([&] {
    EXPECT_TRUE(FailsWith(registry_.Remove(removed->description().id, Later()),
                          ErrorCode::kDeadlineExceeded));
  });
  std::thread suspends([&] {
    EXPECT_TRUE(FailsWith(registry_.Suspend(suspended->description().id, Later()),
                          ErrorCode::kDeadlineExceeded));
  });
  std::this_thread::sleep_for(milliseconds(20));
  registry_.Close();
  removes.join();
  suspends.join();
  registry_.Close();
  const auto late = RegisterWhole("late");
  const auto use = late->Acquire("three");
  EXPECT_TRUE(
      FailsWith(registry_.Remove(late->description().id, Later()), ErrorCode::kDeadlineExceeded));
  EXPECT_LT(Clock::now() - begin, milliseconds(5'000));
  EXPECT_EQ(mapper_.live(), 3u);
}

TEST_F(BufferRemovalTest, SecondRemovalFindsNothing) {
  const auto buffer = RegisterWhole("k");
  EXPECT_TRUE(registry_.Remove(buffer->description().id, Later()));
  EXPECT_TRUE(FailsWith(registry_.Remove(buffer->description().id, Later()), ErrorCode::kNotFound));
  EXPECT_TRUE(FailsWith(registry_.Remove("", Later()), ErrorCode::kNotFound));
}

TEST_F(BufferRemovalTest, NameIsFreeWhileTheOldBufferDrains) {
  const auto old = RegisterWhole("k");
  const auto use = old->Acquire();
  EXPECT_TRUE(
      FailsWith(registry_.Remove(old->description().id, Soon()), ErrorCode::kDeadlineExceeded));
  const auto fresh = RegisterWhole("k");
  ASSERT_NE(fresh, old);
  EXPECT_EQ(registry_.ByName(owner_.name, "k")->get(), fresh.get());
  // The late removal of the old one does not take the name from the new one.
  EXPECT_TRUE(
      FailsWith(registry_.Remove(old->description().id, Soon()), ErrorCode::kDeadlineExceeded));
  EXPECT_TRUE(registry_.Acquire(owner_.name, "k", fresh->description().generation));
}

// Invariant 6.
TEST_F(BufferRemovalTest, StaleGenerationIsRefused) {
  const auto old = RegisterWhole("k");
  const uint64_t stale = old->description().generation;
  EXPECT_TRUE(registry_.Acquire(owner_.name, "k", stale));
  EXPECT_TRUE(registry_.Remove(old->description().id, Later()));
  const auto fresh = RegisterWhole("k");
  ASSERT_NE(fresh->description().generation, stale);
  EXPECT_TRUE(FailsWith(registry_.Acquire(owner_.name, "k", stale), ErrorCode::kStaleGeneration));
  EXPECT_TRUE(registry_.Acquire(owner_.name, "k", fresh->description().generation));
  EXPECT_TRUE(registry_.Acquire(owner_.name, "k", 0));
}

TEST_F(BufferRemovalTest, RemoveAllTellsPeersOnceAndGoesOnPastFailures) {
  std::vector<std::shared_ptr<Buffer>> buffers;
  for (int i = 0; i < 5; ++i) buffers.push_back(RegisterWhole("k" + std::to_string(i), 4096));
  auto busy = buffers[1]->Acquire("transfer-1");
  auto busier = buffers[3]->Acquire("transfer-3");
  const Status status = registry_.RemoveAll(owner_.name, owner_.generation, Soon());
  ASSERT_TRUE(FailsWith(status, ErrorCode::kDeadlineExceeded));
  EXPECT_THAT(status.error().message, HasSubstr("transfer-1"));  // the first failure
  EXPECT_THAT(peers_.calls, ::testing::ElementsAre(5u));
  EXPECT_EQ(mapper_.live(), 2u);
  EXPECT_EQ(registry_.Totals().buffers, 2u);
  {
    const auto ended = std::move(busy);
    const auto ended_too = std::move(busier);
  }
  EXPECT_TRUE(registry_.FinishRemovals(Soon()));
  EXPECT_EQ(mapper_.live(), 0u);
}

// Invariant 3: the owner's death does not keep anything from being unregistered.
TEST_F(BufferRemovalTest, RemovalWorksAfterTheOwnerEnded) {
  const auto buffer = RegisterWhole("k");
  auto use = buffer->Acquire("transfer-1");
  end_deadline_ = Soon();
  ASSERT_TRUE(workloads_.Remove(owner_.name, "deleted"));
  EXPECT_TRUE(FailsWith(end_status_, ErrorCode::kDeadlineExceeded));
  EXPECT_TRUE(FailsWith(registry_.Acquire(owner_.name, "k", 0), ErrorCode::kUnregistered));
  EXPECT_EQ(mapper_.live(), 1u);
  { const auto ended = std::move(use); }
  EXPECT_TRUE(registry_.Remove(buffer->description().id, Soon()));
  EXPECT_EQ(mapper_.live(), 0u);
}

// Invariant 6: the end of an old registration does not touch the buffers of the new one.
TEST_F(BufferRemovalTest, LateEndOfAnOldRegistrationSparesTheNewOne) {
  const auto old = RegisterWhole("k");
  const WorkloadInfo before = owner_;
  const auto use = old->Acquire("transfer-1");
  end_deadline_ = Soon();
  owner_ = *workloads_.Put(before.name, "engine, restarted", ::getuid(), std::nullopt);
  ASSERT_NE(owner_.generation, before.generation);
  const auto fresh = RegisterWhole("k");
  ASSERT_TRUE(fresh);
  EXPECT_NE(fresh, old);
  EXPECT_TRUE(FailsWith(registry_.RemoveAll(before.name, before.generation, Soon()),
                        ErrorCode::kDeadlineExceeded));
  EXPECT_EQ(fresh->state(), BufferState::kActive);
  EXPECT_TRUE(registry_.Acquire(owner_.name, "k", fresh->description().generation));
}

// A registration that began before its workload ended publishes nothing after it.
TEST_F(BufferRemovalTest, WorkloadThatEndsDuringARegistrationLeavesNothing) {
  mapper_.SetMapTime(milliseconds(50));
  wire::RegistrationRequest request = RequestOver({{Memory(kMiB), kMiB}});
  request.buffers = {View("k", {{0, 0, 64}})};
  std::thread ends([&] {
    std::this_thread::sleep_for(milliseconds(15));
    EXPECT_TRUE(workloads_.Remove(owner_.name, "deleted"));
  });
  const auto outcome = registry_.Register(request);
  ends.join();
  EXPECT_TRUE(FailsWith(outcome, ErrorCode::kStaleGeneration));
  EXPECT_EQ(registry_.Totals().buffers, 0u);
  EXPECT_EQ(mapper_.live(), 0u);
}

TEST_F(BufferRemovalTest, SuspendUnmapsAndResumeMapsTheSameMemoryAgain) {
  const auto buffer = RegisterWhole("k");
  const std::string id = buffer->description().id;
  EXPECT_TRUE(registry_.Suspend(id, Later()));
  EXPECT_EQ(peers_.told, std::vector<std::string>{"k"});
  EXPECT_EQ(buffer->state(), BufferState::kSuspended);
  EXPECT_EQ(mapper_.live(), 0u);
  EXPECT_EQ(registry_.Totals().mapped_bytes, 0u);
  EXPECT_EQ(registry_.Totals().buffers, 1u);
  EXPECT_TRUE(FailsWith(registry_.Acquire(owner_.name, "k", 0), ErrorCode::kDraining));
  EXPECT_TRUE(registry_.Suspend(id, Later()));

  EXPECT_TRUE(registry_.Resume(id));
  EXPECT_TRUE(registry_.Resume(id));
  EXPECT_EQ(mapper_.live(), 1u);
  EXPECT_TRUE(registry_.Acquire(owner_.name, "k", buffer->description().generation));
  EXPECT_TRUE(registry_.Remove(id, Later()));
  EXPECT_EQ(mapper_.live(), 0u);
}

TEST_F(BufferRemovalTest, SuspendWaitsForUsesAndOtherBuffersKeepTheMapping) {
  wire::RegistrationRequest request = RequestOver({{Memory(kMiB), kMiB}});
  request.buffers = {View("a", {{0, 0, 64}}), View("b", {{0, 0, 64}})};
  const auto buffers = registry_.Register(request);
  ASSERT_TRUE(buffers);
  const std::string id = (*buffers)[0]->description().id;
  {
    const auto use = (*buffers)[0]->Acquire("transfer-1");
    EXPECT_TRUE(FailsWith(registry_.Suspend(id, Soon()), ErrorCode::kDeadlineExceeded));
    EXPECT_EQ((*buffers)[0]->state(), BufferState::kSuspended);
  }
  EXPECT_TRUE(registry_.Suspend(id, Soon()));
  EXPECT_EQ(mapper_.live(), 1u);
  EXPECT_TRUE(registry_.Acquire(owner_.name, "b", 0));
  EXPECT_TRUE(registry_.Resume(id));
  EXPECT_EQ(mapper_.maps(), 1);  // it was there for "b" all the time
}

TEST_F(BufferRemovalTest, ResumeThatCannotMapLeavesItSuspended) {
  const auto buffer = RegisterWhole("k");
  EXPECT_TRUE(registry_.Suspend(buffer->description().id, Later()));
  mapper_.FailMap(2);
  EXPECT_TRUE(FailsWith(registry_.Resume(buffer->description().id), ErrorCode::kDeviceError));
  EXPECT_EQ(buffer->state(), BufferState::kSuspended);
  EXPECT_TRUE(registry_.Resume(buffer->description().id));
}

TEST_F(BufferRemovalTest, SuspendedBufferCanBeRemovedAndADrainingOneNotSuspended) {
  const auto suspended = RegisterWhole("s");
  EXPECT_TRUE(registry_.Suspend(suspended->description().id, Later()));
  EXPECT_TRUE(registry_.Remove(suspended->description().id, Later()));
  EXPECT_EQ(suspended->state(), BufferState::kGone);

  const auto draining = RegisterWhole("d");
  const auto use = draining->Acquire();
  EXPECT_FALSE(registry_.Remove(draining->description().id, Soon()));
  EXPECT_TRUE(
      FailsWith(registry_.Suspend(draining->description().id, Soon()), ErrorCode::kDraining));
  EXPECT_TRUE(FailsWith(registry_.Resume(draining->description().id), ErrorCode::kDraining));
  EXPECT_EQ(draining->state(), BufferState::kDraining);
}

// Invariant 5, whoever calls it: only what is stopped and unused can be released.
TEST_F(BufferRemovalTest, ReleaseDoesNothingToABufferInUse) {
  const auto buffer = RegisterWhole("k");
  Status on_devices;
  EXPECT_FALSE(buffer->Release(&on_devices));
  {
    const auto use = buffer->Acquire();
    EXPECT_TRUE(buffer->StopUses(BufferState::kDraining));
    EXPECT_FALSE(buffer->AwaitUnused(Soon()));
    EXPECT_FALSE(buffer->Release(&on_devices));
    EXPECT_EQ(buffer->state(), BufferState::kDraining);
    EXPECT_TRUE(mapper_.IsLive(use->allocations()[0]->mapping()));
  }
  EXPECT_TRUE(buffer->Release(&on_devices));
  EXPECT_FALSE(buffer->Release(&on_devices));
  EXPECT_EQ(mapper_.live(), 0u);
}

TEST_F(BufferRemovalTest, MovedUseEndsOnce) {
  const auto buffer = RegisterWhole("k");
  Buffer::Use first = *buffer->Acquire("one");
  Buffer::Use second = *buffer->Acquire("two");
  EXPECT_EQ(buffer->uses(), 2u);
  first = std::move(second);
  EXPECT_THAT(buffer->Users(10), ::testing::ElementsAre("two"));
  Buffer::Use third = std::move(first);
  EXPECT_EQ(buffer->uses(), 1u);
  EXPECT_EQ(&third.buffer(), buffer.get());
}

}  // namespace
}  // namespace gantry::registry
