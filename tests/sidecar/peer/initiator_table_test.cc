// What becomes of initiators over TCP that do not let go of a buffer in time.
#include "sidecar/peer/server/initiator_table.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <optional>
#include <string>
#include <vector>

namespace gantry::peer {
namespace {

using registry::PeerOutcome;

struct FakeStream final : InitiatorStream {
  void PushRevocation(const wire::PeerRevocation& revocation) override {
    revocations.push_back(revocation);
  }
  void PushHeartbeat() override {}
  void PushShutdown(milliseconds) override {}
  void End() override { ended = true; }

  std::vector<wire::PeerRevocation> revocations;
  bool ended = false;
};

class InitiatorTableTest : public ::testing::Test {
 protected:
  static constexpr wire::Access kBoth{true, true};

  void SetUp() override {
    const auto opened =
        table_.Open({"decode", 7, "node", ""}, "shown", /*over_tcp=*/true, &stream_);
    ASSERT_TRUE(opened);
    session_ = opened->session;
  }
  void Describe(const std::string& buffer) {
    table_.CommitDescribe(session_, buffer, *table_.BeginDescribe(session_, buffer), kBoth);
  }
  // Of buffer "kv"; how often `refused_` answers is counted.
  InitiatorTable::Releases Revoke(milliseconds time, std::optional<bool> refused) {
    InitiatorTable::Revoked buffer{.buffer_id = "kv"};
    if (refused) {
      buffer.refuse_to_peers = [this, refused] {
        ++asked_;
        return *refused;
      };
    }
    return table_.Revoke({buffer}, Clock::now() + time);
  }
  static PeerOutcome OnlyOutcomeOf(const InitiatorTable::Releases& releases) {
    EXPECT_EQ(releases.size(), 1u);
    EXPECT_EQ(releases.front().size(), 1u);
    return releases.front().front().outcome;
  }
  bool MayTouch(const std::string& buffer) {
    const auto access = table_.AccessOf(session_, buffer);
    return access && access->remote_write;
  }

  std::vector<PeerOutcome> told_;
  InitiatorTable table_{
      10, milliseconds(1'000), milliseconds(50),
      [this](const auto&, const auto&, PeerOutcome outcome) { told_.push_back(outcome); }};
  FakeStream stream_;
  std::string session_;
  std::atomic<int> asked_ = 0;
};

TEST_F(InitiatorTableTest, WhoDoesNotLetGoIsRefusedTheBufferAndKeepsItsSession) {
  Describe("kv");
  Describe("other");
  const TimePoint begin = Clock::now();
  EXPECT_EQ(OnlyOutcomeOf(Revoke(milliseconds(2'000), true)), PeerOutcome::kRefused);
  EXPECT_GE(Clock::now() - begin, milliseconds(1'500)) << "it had its time";
  EXPECT_LT(Clock::now() - begin, milliseconds(2'000)) << "it is settled before the deadline";
  EXPECT_EQ(asked_, 1);
  EXPECT_EQ(told_, std::vector{PeerOutcome::kRefused});
  EXPECT_FALSE(stream_.ended);
  EXPECT_FALSE(MayTouch("kv"));
  EXPECT_TRUE(MayTouch("other"));
  table_.Tick(Clock::now() + std::chrono::hours(1));
  EXPECT_FALSE(stream_.ended) << "later, too";
  // Asked again, as of a buffer that is still draining: it is settled, and nobody is told again.
  EXPECT_EQ(OnlyOutcomeOf(Revoke(milliseconds(0), true)), PeerOutcome::kRefused);
  EXPECT_EQ(stream_.revocations.size(), 1u);
  EXPECT_EQ(told_.size(), 1u);
}

// What it began before may go on until it says that it does not, and the buffer is another one now.
TEST_F(InitiatorTableTest, ABufferThatComesBackIsRefusedUntilTheRevocationIsAcknowledged) {
  Describe("kv");
  EXPECT_EQ(OnlyOutcomeOf(Revoke(milliseconds(300), true)), PeerOutcome::kRefused);
  Describe("kv");
  EXPECT_FALSE(MayTouch("kv"));
  ASSERT_TRUE(table_.Acknowledge(session_, {stream_.revocations.front().id}));
  EXPECT_TRUE(MayTouch("kv")) << "it was described after it was taken back";
  EXPECT_EQ(OnlyOutcomeOf(Revoke(milliseconds(300), true)), PeerOutcome::kRefused);
  EXPECT_EQ(stream_.revocations.size(), 2u) << "another time it is told again";
}

TEST_F(InitiatorTableTest, WhoLetsGoInTimeIsRefusedNothing) {
  Describe("kv");
  auto revoked =
      std::async(std::launch::async, [this] { return Revoke(milliseconds(10'000), true); });
  // Its number is one of the first: it is acknowledged as soon as it is there.
  while (revoked.wait_for(milliseconds(1)) != std::future_status::ready) {
    ASSERT_TRUE(table_.Acknowledge(session_, {1, 2, 3, 4, 5}));
  }
  EXPECT_EQ(OnlyOutcomeOf(revoked.get()), PeerOutcome::kDrained);
  EXPECT_EQ(asked_, 0);
  EXPECT_TRUE(told_.empty());
}

TEST_F(InitiatorTableTest, WhereItCannotBeRefusedItsSessionEnds) {
  for (const std::optional<bool> refused : {std::optional<bool>(false), std::optional<bool>()}) {
    SCOPED_TRACE(refused ? "it fails" : "there is no way");
    stream_ = {};
    told_.clear();
    const auto opened = table_.Open({"decode", 7, "node", ""}, "shown", true, &stream_);
    ASSERT_TRUE(opened);
    session_ = opened->session;
    Describe("kv");
    asked_ = 0;
    EXPECT_EQ(OnlyOutcomeOf(Revoke(milliseconds(600), refused)), PeerOutcome::kHolding)
        << "its data connections are not closed yet";
    EXPECT_EQ(asked_, refused ? 1 : 0);
    EXPECT_TRUE(stream_.ended);
    EXPECT_EQ(told_, std::vector{PeerOutcome::kCutOff});
    EXPECT_FALSE(table_.AccessOf(session_, "kv"));
    table_.StreamEnded(session_);
  }
}

// Nobody waits: there is a moment for who asks again, then it is cut off.
TEST_F(InitiatorTableTest, WithoutTimeItIsRefusedByWhoAsksAgain) {
  Describe("kv");
  EXPECT_EQ(OnlyOutcomeOf(Revoke(milliseconds(0), true)), PeerOutcome::kHolding);
  EXPECT_EQ(asked_, 0) << "it has had no moment to let go";
  const TimePoint begin = Clock::now();
  table_.Tick(begin + milliseconds(1'000));
  EXPECT_FALSE(stream_.ended);
  PeerOutcome outcome = PeerOutcome::kHolding;
  while (outcome == PeerOutcome::kHolding && Clock::now() < begin + milliseconds(10'000)) {
    outcome = OnlyOutcomeOf(Revoke(milliseconds(10), true));
  }
  EXPECT_EQ(outcome, PeerOutcome::kRefused);
  EXPECT_FALSE(stream_.ended);
}

TEST_F(InitiatorTableTest, WhenNobodyAsksAgainItIsCutOff) {
  Describe("kv");
  EXPECT_EQ(OnlyOutcomeOf(Revoke(milliseconds(0), true)), PeerOutcome::kHolding);
  table_.Tick(Clock::now() + milliseconds(1'500));
  EXPECT_TRUE(stream_.ended);
  EXPECT_EQ(asked_, 0);
}

}  // namespace
}  // namespace gantry::peer
