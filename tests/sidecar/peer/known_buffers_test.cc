// The buffers that a session of an initiator knows, and how a revocation changes that.
#include "sidecar/peer/server/known_buffers.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "sidecar/peer/server/initiator_session.h"

namespace gantry::peer {
namespace {

class KnownBuffersTest : public ::testing::Test {
 protected:
  struct Stream final : InitiatorStream {
    void PushRevocation(const wire::PeerRevocation& revocation) override {
      revocations.push_back(revocation);
    }
    void PushHeartbeat() override {}
    void PushShutdown(milliseconds) override {}
    void End() override { ended = true; }

    std::vector<wire::PeerRevocation> revocations;
    bool ended = false;
  };
  static constexpr wire::Access kBoth{true, true};
  static constexpr milliseconds kTime{4'000};

  static InitiatorSession::Facts FactsOf(bool over_tcp, TimePoint ticket_expires) {
    return {.initiator = {"decode", 7, "node", ""},
            .verified_identity = "shown",
            .over_tcp = over_tcp,
            .lease_ticket = "ticket",
            .lease_ticket_expires = ticket_expires};
  }
  static void Describe(InitiatorSession& session, uint64_t mark) {
    session.buffers().BeginDescribe("kv", mark);
    session.buffers().CommitDescribe("kv", mark, kBoth);
  }
  static bool MayTouch(const InitiatorSession& session) {
    return session.buffers().AccessOf("kv").remote_write;
  }
  uint64_t Revoke(InitiatorSession& session, bool refusable = false) {
    RevokedBuffer buffer{.buffer_id = "kv"};
    if (refusable) buffer.refuse_to_peers = [] { return true; };
    return session.Revoke(buffer, now_, kTime, &last_number_);
  }

  const TimePoint now_ = Clock::now();
  Stream stream_;
  InitiatorSession over_tcp_{FactsOf(true, now_ + kTime), &stream_};
  InitiatorSession on_node_{FactsOf(false, now_ + kTime), &stream_};
  uint64_t last_number_ = 100;
};

TEST_F(KnownBuffersTest, ABufferIsForgottenWhenNoAnswerToldOfIt) {
  KnownBuffers& known = over_tcp_.buffers();
  known.BeginDescribe("kv", 1);
  known.BeginDescribe("kv", 2);
  EXPECT_TRUE(known.Contains("kv"));
  EXPECT_FALSE(known.IsDescribed("kv"));
  EXPECT_FALSE(MayTouch(over_tcp_)) << "the session has no answer yet";
  known.AbortDescribe("kv", 1);
  EXPECT_TRUE(known.Contains("kv")) << "another answer is on its way";
  known.AbortDescribe("kv", 2);
  EXPECT_FALSE(known.Contains("kv"));
  Describe(over_tcp_, 3);
  known.BeginDescribe("kv", 4);
  known.AbortDescribe("kv", 4);
  EXPECT_TRUE(known.IsDescribed("kv"));
  EXPECT_TRUE(MayTouch(over_tcp_));
}

TEST_F(KnownBuffersTest, APendingRevocationCoversWhatIsNotNewer) {
  Describe(over_tcp_, 1);
  const uint64_t first = Revoke(over_tcp_);
  EXPECT_EQ(Revoke(over_tcp_), first);
  EXPECT_EQ(stream_.revocations.size(), 1u);
  last_number_ += 1;
  over_tcp_.buffers().BeginDescribe("kv", last_number_);
  const uint64_t second = Revoke(over_tcp_);
  EXPECT_NE(second, first) << "the session is about to be told of the buffer again";
  over_tcp_.buffers().Acknowledge(first);
  EXPECT_TRUE(over_tcp_.buffers().Contains("kv")) << "the mark is newer";
  EXPECT_FALSE(over_tcp_.buffers().IsDescribed("kv"));
  EXPECT_EQ(over_tcp_.buffers().Find(first), nullptr);
  EXPECT_NE(over_tcp_.buffers().Find(second), nullptr);
}

TEST_F(KnownBuffersTest, AnAcknowledgementLeavesABufferThatCameBack) {
  Describe(over_tcp_, 1);
  const uint64_t revocation = Revoke(over_tcp_);
  Describe(over_tcp_, revocation + 1);
  over_tcp_.buffers().Acknowledge(revocation);
  EXPECT_TRUE(MayTouch(over_tcp_));
  over_tcp_.buffers().Acknowledge(revocation);
  EXPECT_TRUE(MayTouch(over_tcp_)) << "a second time is nothing";
}

TEST_F(KnownBuffersTest, ARefusedBufferMayNotBeTouchedAndEndsNoSession) {
  Describe(over_tcp_, 1);
  const uint64_t revocation = Revoke(over_tcp_, /*refusable=*/true);
  KnownBuffers& known = over_tcp_.buffers();
  const KnownBuffers::Pending pending = *known.Find(revocation);
  EXPECT_LT(pending.refusal, now_ + kTime) << "before the deadline";
  EXPECT_GT(pending.cut_off, pending.refusal);
  EXPECT_TRUE(known.SettleRefusals("kv", true, now_).empty()) << "it has its time";
  EXPECT_TRUE(known.SettleRefusals("other", true, pending.refusal).empty());
  EXPECT_TRUE(MayTouch(over_tcp_));
  EXPECT_EQ(known.SettleRefusals("kv", true, pending.refusal).size(), 1u);
  EXPECT_FALSE(MayTouch(over_tcp_));
  EXPECT_TRUE(known.SettleRefusals("kv", true, pending.refusal).empty()) << "it is settled";
  EXPECT_FALSE(known.IsLate(TimePoint::max()));
  EXPECT_TRUE(known.NotRefused().empty());
}

TEST_F(KnownBuffersTest, AnImpossibleRefusalMakesTheSessionLateAtOnce) {
  Describe(over_tcp_, 1);
  const TimePoint refusal = over_tcp_.buffers().Find(Revoke(over_tcp_, true))->refusal;
  EXPECT_FALSE(over_tcp_.buffers().IsLate(refusal));
  EXPECT_TRUE(over_tcp_.buffers().SettleRefusals("kv", false, refusal).empty());
  EXPECT_TRUE(over_tcp_.buffers().IsLate(refusal));
  EXPECT_EQ(over_tcp_.buffers().NotRefused().size(), 1u);
}

TEST_F(KnownBuffersTest, OnOneNodeThereIsNoTimeAtWhichASessionIsCutOff) {
  Describe(on_node_, 1);
  Revoke(on_node_, /*refusable=*/true);
  EXPECT_EQ(stream_.revocations.front().deadline_ms, kTime.count());
  EXPECT_FALSE(on_node_.buffers().IsLate(now_ + std::chrono::hours(24)));
  EXPECT_TRUE(on_node_.buffers().SettleRefusals("kv", true, now_ + std::chrono::hours(24)).empty());
}

TEST_F(KnownBuffersTest, ASessionIsOverWhenItsStreamAndItsMappingsAre) {
  constexpr milliseconds kGrace{50};
  EXPECT_TRUE(on_node_.IsUnmapped(now_, kGrace)) << "it has had no descriptor";
  EXPECT_TRUE(on_node_.OpenLease(now_));
  EXPECT_FALSE(on_node_.IsUnmapped(now_, kGrace));
  on_node_.SetStreamEnded();
  EXPECT_FALSE(on_node_.IsOver(now_ + kTime, kGrace));
  EXPECT_EQ(Revoke(on_node_), 0u) << "it cannot be told";
  on_node_.EndLease(now_);
  EXPECT_FALSE(on_node_.IsOver(now_, kGrace));
  EXPECT_TRUE(on_node_.IsOver(now_ + kGrace, kGrace));
  EXPECT_FALSE(over_tcp_.IsUnmapped(now_, kGrace));
  over_tcp_.SetStreamEnded();
  EXPECT_TRUE(over_tcp_.IsOver(now_, kGrace)) << "nothing is mapped over TCP";
}

TEST_F(KnownBuffersTest, ALeaseTicketIsGoodUntilItsTimeAndWhileThereIsAStream) {
  EXPECT_FALSE(on_node_.OpenLease(now_ + kTime + milliseconds(1)));
  EXPECT_FALSE(on_node_.has_lease());
  on_node_.SetStreamEnded();
  EXPECT_FALSE(on_node_.OpenLease(now_));
}

TEST_F(KnownBuffersTest, OnlyAnOpenSessionIsCutOff) {
  over_tcp_.SetEnding();
  over_tcp_.CutOff();
  EXPECT_FALSE(stream_.ended || *over_tcp_.cut_off());
  on_node_.CutOff();
  EXPECT_TRUE(stream_.ended && *on_node_.cut_off());
  EXPECT_FALSE(on_node_.is_open());
}

}  // namespace
}  // namespace gantry::peer
