// How the transport waits for completions: it looks for them for a while, then has itself woken.
#include <gtest/gtest.h>

#include "tests/sidecar/transport/rdma/fake_rdma_fixture.h"

namespace gantry::transport {
namespace {

// Long beside what a call takes.
constexpr milliseconds kSpin{20};

class RdmaPolling : public FakeRdmaFixture {
 protected:
  void SetUp() override {
    RdmaOptions options;
    EXPECT_EQ(options.spin, microseconds(50));
    options.spin = kSpin;
    Make(1, options);
    world_->MoveSomething();
    fabric_.SetProgress(FakeFabric::Progress::kByStep);
    arms_ = here_->calls("here0", FakeCall::kArm);
  }
  int Arms() const { return here_->calls("here0", FakeCall::kArm) - arms_; }
  void Poll() {
    const TimePoint before = Clock::now();
    std::vector<uint64_t> ready_tokens;
    polled_ = world_->transport_.Poll(&ready_tokens);
    if (polled_.progressed) moved_ = before;
    ++polls_;
  }
  // Polls on and on while nothing completes, until events are asked for.
  void SpinUntilArmed() {
    const TimePoint limit = Clock::now() + milliseconds(10'000);
    const int arms = Arms();
    for (polls_ = 0; Arms() == arms && Clock::now() < limit;) {
      ASSERT_TRUE(polls_ == 0 || polled_.should_spin) << "nobody is to sleep now";
      Poll();
    }
    ASSERT_EQ(Arms(), arms + 1);
    // Its own last look that moved something may have been some time before.
    EXPECT_GE(Clock::now() - moved_, kSpin / 2) << "events are asked for while it is to look";
    EXPECT_GT(polls_, 2) << "it looked again and again";
    EXPECT_FALSE(polled_.should_spin) << "whoever drives it may sleep";
  }

  int arms_ = 0;
  int polls_ = 0;
  PollOutcome polled_;  // of the last Poll
  TimePoint moved_;     // before the last Poll that moved something
};

TEST_F(RdmaPolling, ItSpinsForAWhileThenAsksForEventsOnce) {
  const auto operation = Start(wire::Operation::kRead, 0, 0, 4096);
  ASSERT_TRUE(PollUntil([this] { return fabric_.pending() != 0; }));
  moved_ = Clock::now();
  Poll();
  SpinUntilArmed();
  for (const TimePoint until = Clock::now() + 3 * kSpin; Clock::now() < until;) Poll();
  EXPECT_EQ(Arms(), 1) << "it is asked for once";
  EXPECT_FALSE(operation->finished());

  // The event wakes, and what moved is a reason to look for more for as long again.
  const auto another = Start(wire::Operation::kRead, 4096, 4096, 4096);
  Poll();
  ASSERT_EQ(fabric_.pending(), 2u);
  world_->waker_.Wait(milliseconds(0));  // whatever woke it before
  const TimePoint completed = Clock::now();
  ASSERT_TRUE(fabric_.Step());
  world_->waker_.Wait(milliseconds(20'000));
  EXPECT_LT(Clock::now() - completed, milliseconds(10'000)) << "the completion's event wakes";
  Poll();
  EXPECT_TRUE(operation->finished());
  EXPECT_EQ(fabric_.pending(), 1u);
  EXPECT_EQ(Arms(), 1);
  SpinUntilArmed();
  EXPECT_EQ(Arms(), 2);
  fabric_.StepAll();
  ASSERT_TRUE(world_->Finish(*another));
  EXPECT_FALSE(another->error());
  fabric_.SetProgress(FakeFabric::Progress::kOnPoll);
}

}  // namespace
}  // namespace gantry::transport
