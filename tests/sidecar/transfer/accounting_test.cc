// Metrics and events learn of every transfer once, before its caller has the answer.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "sidecar/transfer/transfer_engine.h"
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
  Result<TransferStatus> Submit() {
    return engine_->Submit(WithRange(Between("a", "k", "b", "k"), 0, 0, 4096),
                           In(milliseconds(5000)));
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

TEST_F(AccountingTest, WhoHasTheAnswerFindsItCounted) {
  for (uint64_t i = 1; i <= 50; ++i) {
    ASSERT_TRUE(Submit());
    ExpectAllOf(i);
  }
}

TEST_F(AccountingTest, CallersAtOnceLoseNothing) {
  constexpr uint64_t kCallers = 4, kEach = 200;
  std::vector<std::thread> callers;
  for (uint64_t i = 0; i < kCallers; ++i) {
    callers.emplace_back([&] {
      for (uint64_t k = 0; k < kEach; ++k) {
        EXPECT_TRUE(Submit());
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  ExpectAllOf(kCallers * kEach);
}

// One that waits for its own transfer drives those of others, too, and these are not to wait for
// it.
class DrivenAccountingTest : public AccountingTest {
 protected:
  DrivenAccountingTest() : AccountingTest(Patient()) {}
  static EngineOptions Patient() {
    EngineOptions options;
    options.driver_spin = microseconds(5'000'000);
    return options;
  }
};

TEST_F(DrivenAccountingTest, OthersAreAccountedForBeforeTheDriverHasItsAnswer) {
  const auto request = WithRange(Between("a", "k", "b", "k"), 0, 0, 4096);
  pool_.DelayCompletions(milliseconds(100));
  ASSERT_TRUE(engine_->Submit(request, Clock::now()));
  std::this_thread::sleep_for(milliseconds(10));  // the engine's thread sleeps
  pool_.DelayCompletions(milliseconds(2'000));
  std::atomic<bool> answered = false;
  std::thread driver([&] {
    EXPECT_TRUE(engine_->Submit(request, In(milliseconds(5'000))));
    answered = true;
  });
  const auto page = events_.Poll({"a", generations_["a"]}, 0, 10, In(milliseconds(5'000)));
  EXPECT_FALSE(answered) << "its event waited for another transfer";
  EXPECT_EQ(page.events.size(), 1U);
  driver.join();
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

TEST_F(ForgetfulAccountingTest, WhatIsForgottenAtOnceIsCounted) {
  for (uint64_t i = 1; i <= 20; ++i) ASSERT_TRUE(Submit());
  ExpectAllOf(20);
}

}  // namespace
}  // namespace gantry::engine
