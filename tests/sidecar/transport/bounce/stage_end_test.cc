// The end of a stage while something of it goes on: nothing is copied or registered when it
// returns, and whoever hangs is ended by force.
#include <thread>

#include "lib/base/mutex.h"
#include "tests/sidecar/transport/bounce/stage_target_fixture.h"

namespace gantry::transport {
namespace {

// Registers when the test lets it.
class HeldRegistrar final : public memory::NicRegistrar {
 public:
  explicit HeldRegistrar(memory::NicRegistrar& real) : real_(real) {}
  memory::NicRegistration Register(const std::vector<memory::NicPiece>& pieces,
                                   const wire::Access& access) override {
    {
      MutexLock lock(mutex_);
      waits_ = true;
      changed_.NotifyAll();
      while (held_) changed_.Wait(lock);
    }
    return real_.Register(pieces, access);
  }
  void AwaitCall() {
    MutexLock lock(mutex_);
    while (!waits_) changed_.Wait(lock);
  }
  void Let() {
    const MutexLock lock(mutex_);
    held_ = false;
    changed_.NotifyAll();
  }

 private:
  memory::NicRegistrar& real_;
  Mutex mutex_;
  Condition changed_;
  bool waits_ GUARDED_BY(mutex_) = false;
  bool held_ GUARDED_BY(mutex_) = true;
};

class StageEndTest : public StageTargetFixture {
 protected:
  static constexpr milliseconds kGrace{100};

  StageEndTest() { Make({.copy_grace = kGrace}); }
  std::future<void> EndLater(const std::string& session) {
    return std::async(std::launch::async, [this, session] { target_->End(session); });
  }
  static bool Ended(const std::future<void>& end, milliseconds time = milliseconds(0)) {
    return end.wait_for(time) == std::future_status::ready;
  }
  template <typename Condition>
  static bool Comes(const Condition& condition) {
    const TimePoint until = Clock::now() + milliseconds(5'000);
    while (!condition() && Clock::now() < until) {
      std::this_thread::sleep_for(milliseconds(1));
    }
    return condition();
  }
};

TEST_F(StageEndTest, ACopyThatEndsInTimeIsAwaited) {
  const wire::StageGrant grant = Open("a", 2);
  auto copied = CopyLater("a", Move(grant, true, {{0, 0, 1}}, {0}));
  auto copy = copier_.Next();
  ASSERT_TRUE(copy);
  auto ended = EndLater("a");
  EXPECT_FALSE(Ended(ended, kGrace / 4));
  copier_.Finish(*std::move(copy));
  ended.get();
  EXPECT_EQ(copier_.aborts(), 0);
  EXPECT_EQ(host_.live().regions, 0);
  EXPECT_EQ(half_.slices.in_use(), 0u);
  EXPECT_TRUE(copied.get());
}

TEST_F(StageEndTest, ACopyThatHangsIsEndedByForceAndNothingGoesBefore) {
  const wire::StageGrant grant = Open("a", 2);
  auto copied = CopyLater("a", Move(grant, true, {{0, 0, 1}}, {0}));
  auto copy = copier_.Next();
  ASSERT_TRUE(copy);
  const TimePoint begun = Clock::now();
  auto ended = EndLater("a");
  ASSERT_TRUE(Comes([&] { return copier_.aborts() > 0; }));
  EXPECT_GE(Clock::now() - begun, kGrace);
  EXPECT_EQ(copier_.aborted(), copy->owner);
  // No other is begun, and what it uses is there until it is quiet.
  EXPECT_EQ(Refusal("a", Move(grant, true, {{0, 0, 1}}, {1})).error().code, ErrorCode::kNotFound);
  EXPECT_FALSE(Ended(ended, 3 * kGrace));
  EXPECT_GT(copier_.aborts(), 1) << "again and again";
  EXPECT_EQ(host_.live().regions, 4);
  EXPECT_EQ(half_.slices.in_use(), 2u);
  EXPECT_EQ(buffers_.in_use(), 1);
  copier_.Finish(*std::move(copy), Fail(ErrorCode::kWorkerLost, "by force"));
  ended.get();
  EXPECT_EQ(host_.live().regions, 0);
  EXPECT_EQ(half_.slices.in_use(), 0u);
  EXPECT_EQ(buffers_.in_use(), 0);
  EXPECT_EQ(copied.get().error().code, ErrorCode::kWorkerLost);
}

TEST_F(StageEndTest, OthersCopiesGoOn) {
  const wire::StageGrant one = Open("a", 1);
  const wire::StageGrant other = Open("b", 1);
  auto theirs = CopyLater("b", Move(other, true, {{0, 0, 1}}, {0}));
  auto copy = copier_.Next();
  ASSERT_TRUE(copy);
  target_->Close("a", one.stage);
  target_->End("a");
  EXPECT_EQ(copier_.aborts(), 0);
  EXPECT_EQ(target_->totals().stages, 1u);
  copier_.Finish(*std::move(copy));
  EXPECT_TRUE(theirs.get());
}

// Whoever is the second to end it returns no sooner than the first.
TEST_F(StageEndTest, AllWhoEndItWaitForIt) {
  Make({.copy_grace = milliseconds(60'000)});
  const wire::StageGrant grant = Open("a", 1);
  auto copied = CopyLater("a", Move(grant, false, {{0, 0, 1}}, {0}));
  auto copy = copier_.Next();
  ASSERT_TRUE(copy);
  auto closed = std::async(std::launch::async, [&] { target_->Close("a", grant.stage); });
  auto ended = EndLater("a");
  EXPECT_FALSE(Ended(closed, milliseconds(50)));
  EXPECT_FALSE(Ended(ended));
  EXPECT_EQ(RefusalOfOpen("a", 1), ErrorCode::kConflict) << "not yet gone";
  copier_.Finish(*std::move(copy));
  closed.get();
  ended.get();
  EXPECT_EQ(host_.live().regions, 0);
  EXPECT_TRUE(copied.get());
}

TEST_F(StageEndTest, ASessionThatEndsWhileItsStageIsMadeGetsNone) {
  HeldRegistrar held(registrar_);
  Make({}, &held);
  auto opened = std::async(std::launch::async, [&] { return target_->Open("a", 2); });
  held.AwaitCall();
  auto ended = EndLater("a");
  EXPECT_FALSE(Ended(ended, milliseconds(50))) << "it would be registered later";
  held.Let();
  ended.get();
  EXPECT_EQ(host_.live().regions, 0);
  EXPECT_EQ(half_.slices.in_use(), 0u);
  const auto grant = opened.get();
  ASSERT_FALSE(grant);
  EXPECT_EQ(grant.error().code, ErrorCode::kStaleGeneration);
  target_->End("a");
  Make({});
}

TEST_F(StageEndTest, NothingIsCopiedToAStageThatIsNotGrantedYet) {
  HeldRegistrar held(registrar_);
  Make({}, &held);
  auto opened = std::async(std::launch::async, [&] { return target_->Open("a", 2); });
  held.AwaitCall();
  wire::StageGrant guessed;
  guessed.stage = 1;
  const Status refused = Refusal("a", Move(guessed, true, {{0, 0, 1}}, {0}));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kNotFound);
  held.Let();
  const auto grant = opened.get();
  ASSERT_TRUE(grant);
  EXPECT_EQ(grant->stage, guessed.stage) << "or the test looked at nothing";
  target_->End("a");
  Make({});
}

}  // namespace
}  // namespace gantry::transport
