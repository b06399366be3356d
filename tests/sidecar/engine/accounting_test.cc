// Metrics and events learn of every transfer once: at once, or after the answer when its caller
// says so; and without it as soon as anybody drives or asks.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "sidecar/engine/transfer_engine.h"
#include "tests/fakes/engine_fixture.h"

namespace gantry::engine {
namespace {

using testing::In;
using testing::TestArena;

class AccountingTest : public testing::EngineFixture {
 protected:
  explicit AccountingTest(EngineOptions options = {}) : EngineFixture(options) {}
  void SetUp() override {
    EngineFixture::SetUp();
    AddWorkload("a");
    AddWorkload("b");
    ASSERT_TRUE(Register("a", {&arena_a_}, {{"k", {{0, 0, kArena}}, {}, {}}}));
    ASSERT_TRUE(Register("b", {&arena_b_}, {{"k", {{0, 0, kArena}}, {}, {true, true}}}));
  }
  Result<TransferStatus> Submit(Accounting accounting) {
    return engine_->Submit(WithRange(Between("a", "k", "b", "k"), 0, 0, 4096),
                           In(milliseconds(5000)), nullptr, accounting);
  }
  double Succeeded() {
    const std::string text = Counted();
    const std::string series =
        R"(gantry_transfers_total{op="read",outcome="succeeded",path="shm"} )";
    const size_t at = text.find(series);
    return at == std::string::npos ? 0 : std::stod(text.substr(at + series.size()));
  }
  void ExpectAllOf(uint64_t transfers) {
    EXPECT_EQ(events_.last_sequence(), transfers);
    EXPECT_EQ(Succeeded(), static_cast<double>(transfers));
  }

  TestArena arena_a_{kArena, 1};
  TestArena arena_b_{kArena, 2};
};

TEST_F(AccountingTest, WhoSaysNothingIsAnsweredWhenAllIsCounted) {
  for (uint64_t i = 1; i <= 50; ++i) {
    ASSERT_TRUE(Submit(Accounting::kAtOnce));
    engine_->AwaitAccounts();  // the engine's own thread may have answered
    ExpectAllOf(i);
  }
}

TEST_F(AccountingTest, TheCallerCountsAfterwards) {
  for (uint64_t i = 1; i <= 50; ++i) {
    ASSERT_TRUE(Submit(Accounting::kByCaller));
    engine_->Account();
    engine_->AwaitAccounts();
    ExpectAllOf(i);
    engine_->Account();
    ExpectAllOf(i);
  }
}

// A caller that fails to is not waited for by others, nor for ever.
TEST_F(AccountingTest, WhoeverAsksFindsItCounted) {
  ASSERT_TRUE(Submit(Accounting::kByCaller));
  engine_->AwaitAccounts();
  ExpectAllOf(1);
  ASSERT_TRUE(Submit(Accounting::kByCaller));
  engine_->Totals();  // as before a scrape
  ExpectAllOf(2);
  ASSERT_TRUE(Submit(Accounting::kByCaller));
  for (int i = 0; i < 500 && events_.last_sequence() < 3; ++i) {
    std::this_thread::sleep_for(milliseconds(10));
  }
  ExpectAllOf(3);
  ASSERT_TRUE(Submit(Accounting::kByCaller));
  engine_.reset();
  ExpectAllOf(4);
}

TEST_F(AccountingTest, CallersAtOnceLoseNothing) {
  constexpr uint64_t kCallers = 4, kEach = 200;
  std::vector<std::thread> callers;
  for (uint64_t i = 0; i < kCallers; ++i) {
    callers.emplace_back([&, i] {
      for (uint64_t k = 0; k < kEach; ++k) {
        EXPECT_TRUE(Submit(i % 2 == 0 ? Accounting::kByCaller : Accounting::kAtOnce));
        engine_->Account();
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  engine_->AwaitAccounts();
  ExpectAllOf(kCallers * kEach);
}

// One that waits for its own transfer drives those of others, too, and these are not to wait for
// it.
class DrivenAccountingTest : public AccountingTest,
                             public ::testing::WithParamInterface<Accounting> {
 protected:
  DrivenAccountingTest() : AccountingTest(Patient()) {}
  static EngineOptions Patient() {
    EngineOptions options;
    options.answer_spin = microseconds(5'000'000);
    return options;
  }
};
INSTANTIATE_TEST_SUITE_P(Both, DrivenAccountingTest,
                         ::testing::Values(Accounting::kAtOnce, Accounting::kByCaller));

TEST_P(DrivenAccountingTest, OthersAreAccountedForBeforeTheDriverHasItsAnswer) {
  const auto request = WithRange(Between("a", "k", "b", "k"), 0, 0, 4096);
  pool_.DelayCompletions(milliseconds(100));
  ASSERT_TRUE(engine_->Submit(request, Clock::now(), nullptr, Accounting::kByCaller));
  engine_->Account();
  std::this_thread::sleep_for(milliseconds(10));  // the engine's thread sleeps
  pool_.DelayCompletions(milliseconds(2'000));
  std::atomic<bool> answered = false;
  std::thread driver([&] {
    EXPECT_TRUE(engine_->Submit(request, In(milliseconds(5'000)), nullptr, GetParam()));
    answered = true;
    engine_->Account();
  });
  const auto page = events_.Poll({"a", generations_["a"]}, 0, 10, In(milliseconds(5'000)));
  EXPECT_FALSE(answered) << "its event waited for another transfer";
  EXPECT_EQ(page.events.size(), 1U);
  driver.join();
  engine_->AwaitAccounts();
  ExpectAllOf(2);
}

class ForgetfulAccountingTest : public AccountingTest {
 protected:
  ForgetfulAccountingTest() : AccountingTest(Forgetful()) {}
  static EngineOptions Forgetful() {
    EngineOptions options;
    options.finished_kept_max = 0;
    return options;
  }
};

TEST_F(ForgetfulAccountingTest, ATransferIsNotForgottenBeforeItIsCounted) {
  for (uint64_t i = 1; i <= 20; ++i) ASSERT_TRUE(Submit(Accounting::kByCaller));
  engine_->AwaitAccounts();
  ExpectAllOf(20);
}

}  // namespace
}  // namespace gantry::engine
