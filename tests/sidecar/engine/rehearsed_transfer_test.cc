// A transfer that is rehearsed goes the way of one that is submitted, moves nothing and leaves no
// trace.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "sidecar/engine/transfer_engine.h"
#include "sidecar/engine/view_table.h"
#include "tests/fakes/engine_fixture.h"

namespace gantry::engine {
namespace {

using testing::In;
using testing::TestArena;

constexpr uint64_t kBufferOffset = 12'288;
constexpr uint64_t kBufferLength = 512 * 1024;

// Knows one buffer, which it maps for who asks as it would for a transfer.
class OneRemoteBuffer final : public PeerGateway {
 public:
  Result<std::vector<std::shared_ptr<const RemoteBuffer>>> Acquire(
      const std::string& peer, const std::vector<wire::BufferReference>& references, RemoteUse,
      TimePoint deadline) override {
    latest = std::max(latest, deadline);
    if (peer != known) return Fail(ErrorCode::kDeadlineExceeded, "it would have to be asked");
    auto buffer = std::make_shared<RemoteBuffer>();
    buffer->reference = references.front();
    buffer->length = kBufferLength;
    buffer->access = {true, true};
    buffer->pieces = *memory::PieceMap::Create({{0, 0, kBufferLength}}, std::array{kBufferLength});
    buffer->allocations = {{mapped}};
    buffer->mapped = true;
    for (int i = 0; i < wire::kPathCount; ++i) {
      buffer->paths.push_back({static_cast<wire::Path>(i), true, ""});
    }
    last = buffer;
    return std::vector<std::shared_ptr<const RemoteBuffer>>{buffer};
  }
  void Refresh(const std::string&, const std::vector<uint64_t>&, const Error&, TimePoint) override {
    ++refreshes;
  }

  std::string known = "peer";
  std::shared_ptr<const memory::MappedAllocation> mapped;
  std::shared_ptr<const RemoteBuffer> last;  // handed out
  TimePoint latest;                          // of the deadlines
  int refreshes = 0;
};

class RehearsedTransferTest : public testing::EngineFixture {
 protected:
  void SetUp() override {
    EngineFixture::SetUp();
    AddWorkload("a");
    AddWorkload("b");
    ASSERT_TRUE(
        Register("a", {&arena_a_}, {{"k", {{0, kBufferOffset, kBufferLength}}, Layout(), {}}}));
    ASSERT_TRUE(Register("b", {&arena_b_},
                         {{"k", {{0, kBufferOffset, kBufferLength}}, Layout(), {true, true}}}));
  }
  static wire::BlockLayout Layout() { return {4096, 4096, kBufferLength / 4096}; }
  static wire::TransferRequest Whole() {
    return WithRange(Between("a", "k", "b", "k"), 0, 0, kBufferLength);
  }

  TestArena arena_a_{kArena, 1};
  TestArena arena_b_{kArena, 2};
};

TEST_F(RehearsedTransferTest, ARehearsalMovesNothingAndLeavesNoTrace) {
  const auto moved = engine_->Submit(Whole(), In(milliseconds(2000)));
  ASSERT_TRUE(moved);
  const std::vector<uint8_t> bytes(arena_a_.data(), arena_a_.data() + kArena);
  arena_b_.data()[kBufferOffset] ^= 1;
  const size_t posted = pool_.posted().size();
  pool_.TakeRoused();
  const std::string counted = Counted();
  const uint64_t events = events_.last_sequence();
  auto request = Whole();
  request.id = "mine";
  for (int i = 0; i < 3; ++i) {
    const auto rehearsed = engine_->Rehearse(request);
    ASSERT_TRUE(rehearsed) << rehearsed.error().message;
    EXPECT_EQ(rehearsed->state, TransferState::kSucceeded);
    EXPECT_EQ(rehearsed->bytes_moved, kBufferLength);
    EXPECT_EQ(rehearsed->chunks_moved, moved->chunks_moved);
    EXPECT_EQ(rehearsed->workers, moved->workers);
    EXPECT_EQ(rehearsed->path, moved->path);
  }
  EXPECT_EQ(pool_.posted().size(), posted);
  EXPECT_TRUE(pool_.TakeRoused().empty());
  EXPECT_TRUE(Counted() == counted);
  EXPECT_EQ(events_.last_sequence(), events);
  EXPECT_EQ(engine_->List("", false, 10).size(), 1U);
  EXPECT_EQ(engine_->Totals().bytes_inflight, 0U);
  EXPECT_EQ(std::memcmp(bytes.data(), arena_a_.data(), kArena), 0);
  EXPECT_EQ(engine_->Get("a", "mine", Clock::now()).error().code, ErrorCode::kNotFound);
  const auto status = engine_->Submit(request, In(milliseconds(2000)));
  ASSERT_TRUE(status);
  EXPECT_EQ(
      std::memcmp(arena_a_.data() + kBufferOffset, arena_b_.data() + kBufferOffset, kBufferLength),
      0);
  // Nothing keeps the buffers.
  const auto buffer = registry_.ByName("a", "k");
  EXPECT_TRUE(registry_.Remove((*buffer)->description().id, Clock::now()));
  const std::string before = Counted();
  EXPECT_FALSE(engine_->Rehearse(request));
  EXPECT_TRUE(Counted() == before) << "an error was counted";
}

TEST_F(RehearsedTransferTest, NobodySeesItInTheTable) {
  ASSERT_TRUE(engine_->Submit(Whole(), In(milliseconds(2000))));
  std::atomic<bool> stop = false;
  std::thread other([&] {
    while (!stop) EXPECT_TRUE(engine_->Rehearse(Whole()));
  });
  for (const TimePoint end = Clock::now() + milliseconds(300); Clock::now() < end;) {
    ASSERT_EQ(engine_->List("", false, 10).size(), 1U);
    const EngineTotals totals = engine_->Totals();
    ASSERT_EQ(totals.running + totals.queued, 0U);
  }
  stop = true;
  other.join();
}

TEST_F(RehearsedTransferTest, WhatTakesLongOrIsAPeersIsNotRehearsed) {
  auto many = Between("a", "k", "b", "k");
  for (uint64_t i = 0; i < 1025; ++i) many.ranges.push_back({0, 2 * i, 0, 2 * i, 1});
  EXPECT_FALSE(engine_->Rehearse(many));
  many.ranges.pop_back();
  EXPECT_TRUE(engine_->Rehearse(many));
  auto held = Whole();
  held.hold = "h";
  EXPECT_FALSE(engine_->Rehearse(held));
  auto by_peer = Whole();
  by_peer.executor = wire::Executor::kPeer;
  EXPECT_FALSE(engine_->Rehearse(by_peer));
  auto unknown = Whole();
  unknown.remote[0].peer = "nobody";
  EXPECT_FALSE(engine_->Rehearse(unknown));
  auto told = Whole();
  told.notify = wire::NotificationContent();
  const auto rehearsed = engine_->Rehearse(told);
  ASSERT_TRUE(rehearsed);
  EXPECT_FALSE(rehearsed->notified);
}

TEST_F(RehearsedTransferTest, ByViewAsWellWhichIsNotRenewed) {
  wire::ViewRequest wanted;
  wanted.workload = "a";
  wanted.remote_workload = "b";
  wanted.groups.emplace_back().pairs.push_back({{"", "", "k", 0}, {"", "b", "k", 0}});
  bool is_new = false;
  const auto view = engine_->views().Make(wanted, In(milliseconds(1000)), &is_new);
  ASSERT_TRUE(view) << view.error().message;
  wire::TransferRequest request;
  request.workload = "a";
  request.view = (*view)->id;
  request.by_blocks = true;
  request.local_blocks = {1};
  request.remote_blocks = {2};
  const size_t posted = pool_.posted().size();
  const auto rehearsed = engine_->Rehearse(request);
  ASSERT_TRUE(rehearsed) << rehearsed.error().message;
  EXPECT_EQ(rehearsed->bytes_moved, 4096U);
  EXPECT_EQ(pool_.posted().size(), posted) << "it moved bytes";
  ASSERT_TRUE(registry_.Remove((*registry_.ByName("b", "k"))->description().id, Clock::now()));
  ASSERT_TRUE(Register("b", {&arena_b_},
                       {{"k", {{0, kBufferOffset, kBufferLength}}, Layout(), {true, true}}}));
  EXPECT_FALSE(engine_->Rehearse(request)) << "it was renewed";
  EXPECT_TRUE(engine_->Submit(request, In(milliseconds(2000))));
  EXPECT_TRUE(engine_->Rehearse(request));
}

// Whoever removes a buffer does not hear of it, whatever time there is.
TEST_F(RehearsedTransferTest, ARehearsalIsWaitedForAndNotSeen) {
  const auto buffer = *registry_.ByName("a", "k");
  auto rehearsal = registry_.Acquire("a", "k", 0, registry::Buffer::kRehearsal);
  ASSERT_TRUE(rehearsal);
  EXPECT_EQ(buffer->uses(), 0U);
  EXPECT_TRUE(buffer->Users(4).empty());
  const size_t mappings = pool_.mapping_count();
  std::thread other([&, moved = std::move(*rehearsal)]() mutable {
    const registry::Buffer::Use running = std::move(moved);
    std::this_thread::sleep_for(milliseconds(30));
    EXPECT_EQ(pool_.mapping_count(), mappings);
  });
  {
    const auto seen = registry_.Acquire("a", "k", 0, "t");
    EXPECT_EQ(buffer->uses(), 1U);
    EXPECT_EQ(buffer->Users(4), std::vector<std::string>{"t"});
  }
  EXPECT_TRUE(registry_.Remove(buffer->description().id, Clock::now()));
  EXPECT_LT(pool_.mapping_count(), mappings);
  other.join();
}

// With a deadline that has passed the gateway answers from what it has.
TEST_F(RehearsedTransferTest, NoPeerIsAsked) {
  OneRemoteBuffer gateway;
  gateway.mapped = (*registry_.ByName("b", "k"))->Acquire()->allocations().front();
  engine_->SetPeerGateway(&gateway);
  auto request = Whole();
  request.remote[0].peer = "peer";
  const auto rehearsed = engine_->Rehearse(request);
  ASSERT_TRUE(rehearsed) << rehearsed.error().message;
  EXPECT_EQ(rehearsed->peer, "peer");
  EXPECT_LE(gateway.latest, Clock::now());
  EXPECT_EQ(gateway.last.use_count(), 1) << "the peer's buffer is kept";
  gateway.known = "another";
  EXPECT_FALSE(engine_->Rehearse(request));
  EXPECT_LE(gateway.latest, Clock::now());
  EXPECT_EQ(gateway.refreshes, 0);
  engine_.reset();
}

}  // namespace
}  // namespace gantry::engine
