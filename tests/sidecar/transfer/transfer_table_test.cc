// The table of transfers: what is found by which name, whose timer is next, and what is forgotten.
#include "sidecar/transfer/transfer_table.h"

#include <gtest/gtest.h>

#include "sidecar/transfer/ended_workloads.h"

namespace gantry::engine {
namespace {

Admitted Of(const std::string& workload, const std::string& id) {
  Admitted admitted;
  admitted.status.workload = workload;
  admitted.status.id = id;
  return admitted;
}

EngineOptions Keeping(size_t finished) {
  EngineOptions options;
  options.finished_kept_max = finished;
  options.finished_ttl = milliseconds(1000);
  return options;
}

class TransferTableTest : public ::testing::Test {
 protected:
  Transfer* Add(const std::string& id) { return table_.Add(Of("w", id), now_); }

  const TimePoint now_ = Clock::now();
  const EngineOptions options_ = Keeping(2);
  TransferTable table_{options_};
};

TEST_F(TransferTableTest, ATransferIsFoundByItsTokenAndByItsWorkloadAndId) {
  Transfer* const first = Add("a");
  Transfer* const second = Add("b");
  EXPECT_EQ(table_.Find(first->token), first);
  EXPECT_EQ(table_.Find({"w", "b"}), second);
  EXPECT_EQ(table_.Find({"other", "b"}), nullptr);
  EXPECT_EQ(table_.Find(second->token + 1), nullptr);
  EXPECT_EQ(table_.all().begin()->second.get(), first);  // the oldest
}

TEST_F(TransferTableTest, AnIdThatIsUsedAgainNamesTheNewTransferWhenTheOldOneGoes) {
  Transfer* const first = Add("a");
  const uint64_t token = first->token;
  Transfer* const second = Add("a");
  EXPECT_EQ(table_.Find({"w", "a"}), second);
  EXPECT_EQ(table_.Find(token), first);
  table_.KeepFinished(*first, now_);
  table_.ForgetOld(now_ + milliseconds(2000));
  EXPECT_EQ(table_.Find(token), nullptr);
  EXPECT_EQ(table_.Find({"w", "a"}), second);
}

TEST_F(TransferTableTest, TimersAreTakenInTheirOrderOnceTheyAreDue) {
  Transfer* const late = Add("late");
  Transfer* const soon = Add("soon");
  EXPECT_EQ(table_.next_timer(), TimePoint::max());
  table_.SetTimer(late, now_ + milliseconds(20));
  table_.SetTimer(soon, now_ + milliseconds(30));
  table_.SetTimer(soon, now_ + milliseconds(10));  // replaces
  EXPECT_EQ(table_.next_timer(), now_ + milliseconds(10));
  EXPECT_EQ(table_.TakeDue(now_), nullptr);
  EXPECT_EQ(table_.TakeDue(now_ + milliseconds(25)), soon);
  EXPECT_FALSE(soon->timer);
  EXPECT_EQ(table_.TakeDue(now_ + milliseconds(25)), late);
  EXPECT_EQ(table_.TakeDue(now_ + milliseconds(25)), nullptr);
  table_.SetTimer(late, now_);
  table_.ClearTimer(late);
  EXPECT_EQ(table_.next_timer(), TimePoint::max());
}

TEST_F(TransferTableTest, FinishedOnesAreKeptForATimeAndNoMoreThanSoMany) {
  Transfer* const running = Add("running");
  for (const char* id : {"a", "b", "c"}) table_.KeepFinished(*Add(id), now_);
  table_.ForgetOld(now_);
  EXPECT_EQ(table_.Find({"w", "a"}), nullptr);  // the oldest of three, where two are kept
  EXPECT_NE(table_.Find({"w", "b"}), nullptr);
  table_.ForgetOld(now_ + milliseconds(1001));
  EXPECT_EQ(table_.Find({"w", "c"}), nullptr);
  EXPECT_EQ(table_.Find({"w", "running"}), running);
}

TEST_F(TransferTableTest, FailedItemsOfFinishedOnesHaveABoundTogether) {
  TransferTable table{options_};
  const auto many = std::make_shared<const std::vector<uint32_t>>(3'000'000);
  for (const char* id : {"a", "b"}) {
    Transfer* const transfer = table.Add(Of("w", id), now_);
    transfer->admitted.status.failed_items = many;
    table.KeepFinished(*transfer, now_);
  }
  table.ForgetOld(now_);
  EXPECT_EQ(table.Find({"w", "a"}), nullptr);
  EXPECT_NE(table.Find({"w", "b"}), nullptr);
}

TEST_F(TransferTableTest, TheIdsOfTerminalOnesThatMatchAreFree) {
  Transfer* const ended = Add("a");
  Transfer* const kept = Add("b");
  Transfer* const running = Add("c");
  running->is_notifying = true;
  table_.ForgetIds([&](const Transfer& transfer) { return &transfer != kept; });
  EXPECT_EQ(table_.Find({"w", "a"}), nullptr);
  EXPECT_EQ(table_.Find(ended->token), ended);
  EXPECT_EQ(table_.Find({"w", "b"}), kept);
  EXPECT_EQ(table_.Find({"w", "c"}), running);
}

TEST_F(TransferTableTest, TheNewestAreListedFirstAndWhatIsActiveIsCounted) {
  Transfer* const first = Add("a");
  Add("b");
  first->is_notifying = true;  // the other one is terminal
  const auto all = table_.List("w", false, 8);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].id, "b");
  EXPECT_EQ(table_.List("w", false, 1).size(), 1u);
  EXPECT_EQ(table_.List("w", true, 8).size(), 1u);
  EXPECT_TRUE(table_.List("other", false, 8).empty());
  EXPECT_EQ(table_.List("", false, 8).size(), 2u);
  EXPECT_EQ(table_.Totals().running, 1u);
  EXPECT_EQ(table_.active(), 2u);
  table_.KeepFinished(*first, now_);
  EXPECT_EQ(table_.active(), 1u);
}

TEST(EndedWorkloadsTest, TheOldestIsForgottenWhenThereAreTooMany) {
  EndedWorkloads ended;
  EXPECT_FALSE(ended.Contains(1));
  for (uint64_t generation = 1; generation <= 4096; ++generation) ended.Add(generation);
  ended.Add(4096);  // known
  EXPECT_TRUE(ended.Contains(1));
  ended.Add(4097);
  EXPECT_FALSE(ended.Contains(1));
  EXPECT_TRUE(ended.Contains(2));
  EXPECT_TRUE(ended.Contains(4097));
}

}  // namespace
}  // namespace gantry::engine
