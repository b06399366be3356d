#include "sidecar/registry/workload_table.h"

#include <gmock/gmock.h>

#include <thread>

#include "lib/base/random_id.h"
#include "tests/sidecar/registry/registry_fixture.h"

namespace gantry::registry {
namespace {

constexpr uid_t kOwner = 4001;
constexpr uid_t kStranger = 4002;
constexpr uid_t kRoot = 0;

class WorkloadTableTest : public ::testing::Test {
 protected:
  WorkloadTableTest()
      : table_({.workloads_max = 3, .fds_max = 8, .fds_per_workload_max = 5},
               [this](const WorkloadInfo& workload, std::string_view why) {
                 ended_.push_back(workload.name + ": " + std::string(why));
                 EXPECT_TRUE(FailsWith(table_.Get(workload.name), ErrorCode::kNotFound));
               }) {}

  WorkloadInfo Put(const std::string& name) {
    return *table_.Put(name, "engine", kOwner, std::nullopt);
  }
  Result<std::vector<std::string>> Keep(const WorkloadInfo& workload, int count) {
    std::vector<UniqueFd> fds;
    for (int i = 0; i < count; ++i) fds.push_back(MakeMemfd(4096));
    return table_.KeepFds(workload.name, workload.generation, std::move(fds));
  }

  std::vector<std::string> ended_;
  WorkloadTable table_;
};

TEST_F(WorkloadTableTest, PutAgainRenewsTheSameLease) {
  const WorkloadInfo first = Put("w");
  const WorkloadInfo again = *table_.Put("w", "engine", kOwner, milliseconds(50));
  EXPECT_EQ(again.generation, first.generation);
  EXPECT_EQ(again.lease_token, first.lease_token);
  EXPECT_EQ(again.ttl, milliseconds(50));
  EXPECT_TRUE(ended_.empty());
}

TEST_F(WorkloadTableTest, AnotherEngineReplacesAWorkloadThatIsNotAttached) {
  std::vector<std::string> order;
  WorkloadTable table({}, [&](const WorkloadInfo& workload, std::string_view) {
    order.push_back(HexOf(workload.generation));
  });
  const WorkloadInfo old = *table.Put("w", "engine", kOwner, std::nullopt);
  const WorkloadInfo fresh = *table.Put("w", "another", kOwner, std::nullopt);
  EXPECT_NE(fresh.generation, old.generation);
  EXPECT_NE(fresh.lease_token, old.lease_token);
  EXPECT_THAT(order, ::testing::ElementsAre(HexOf(old.generation)));

  ASSERT_TRUE(table.Attach(fresh.lease_token, 1, kOwner));
  EXPECT_TRUE(FailsWith(table.Put("w", "third", kOwner, std::nullopt), ErrorCode::kConflict));
  EXPECT_TRUE(table.Put("w", "another", kOwner, std::nullopt));
}

TEST_F(WorkloadTableTest, PutChecksNameEngineTtlUserAndRoom) {
  const auto expect = [&](const auto& outcome, ErrorCode code, const std::string& field) {
    ASSERT_TRUE(FailsWith(outcome, code));
    EXPECT_EQ(outcome.error().field, field);
  };
  using std::nullopt;
  expect(table_.Put("a/b", "e", kOwner, nullopt), ErrorCode::kInvalidArgument, "/name");
  expect(table_.Put("w", std::string(257, 'e'), kOwner, nullopt), ErrorCode::kInvalidArgument,
         "/engine_id");
  expect(table_.Put("w", "e", kOwner, milliseconds(0)), ErrorCode::kInvalidArgument, "/ttl_ms");
  expect(table_.Put("w", "e", kOwner, milliseconds(-1)), ErrorCode::kInvalidArgument, "/ttl_ms");
  expect(table_.Put("w", "e", kOwner, milliseconds(3'600'001)), ErrorCode::kInvalidArgument,
         "/ttl_ms");
  Put("w");
  expect(table_.Put("w", "engine", kStranger, nullopt), ErrorCode::kPermissionDenied, "/name");
  Put("w1");
  Put("w2");
  expect(table_.Put("w3", "e", kOwner, nullopt), ErrorCode::kResourceExhausted, "");
  EXPECT_EQ(table_.List().size(), 3u);
}

TEST_F(WorkloadTableTest, AuthorizesTheTokenTheUserAndRoot) {
  const WorkloadInfo own = Put("w");
  const WorkloadInfo other = Put("v");
  EXPECT_EQ(table_.Authorize("w", own.lease_token, std::nullopt), own.generation);
  EXPECT_TRUE(table_.Authorize("w", "", kOwner));
  EXPECT_TRUE(table_.Authorize("w", "", kRoot));
  EXPECT_TRUE(table_.Authorize("w", "", ::geteuid()));
  EXPECT_TRUE(FailsWith(table_.Authorize("w", "", kStranger), ErrorCode::kPermissionDenied));
  EXPECT_TRUE(FailsWith(table_.Authorize("w", "", std::nullopt), ErrorCode::kUnauthenticated));
  EXPECT_TRUE(
      FailsWith(table_.Authorize("w", other.lease_token, kOwner), ErrorCode::kPermissionDenied));
  EXPECT_TRUE(FailsWith(table_.Authorize("u", "", kOwner), ErrorCode::kNotFound));
  EXPECT_EQ(table_.ByToken(other.lease_token)->name, "v");
  EXPECT_TRUE(FailsWith(table_.ByToken(""), ErrorCode::kUnauthenticated));
}

TEST_F(WorkloadTableTest, AttachTakesTheOwnersUserOrRootAndOneConnection) {
  const WorkloadInfo own = Put("w");
  EXPECT_TRUE(
      FailsWith(table_.Attach(own.lease_token, 7, kStranger), ErrorCode::kPermissionDenied));
  EXPECT_TRUE(FailsWith(table_.Attach(RandomToken(), 7, kOwner), ErrorCode::kUnauthenticated));
  const auto attached = table_.Attach(own.lease_token, 7, kOwner);
  ASSERT_TRUE(attached);
  EXPECT_TRUE(attached->attached);
  EXPECT_EQ(attached->pid, 7);
  EXPECT_TRUE(FailsWith(table_.Attach(own.lease_token, 8, kOwner), ErrorCode::kConflict));
  EXPECT_TRUE(table_.Attach(Put("v").lease_token, 9, kRoot));
}

TEST_F(WorkloadTableTest, DetachEndsOnlyItsOwnGenerationAndOnce) {
  const WorkloadInfo old = Put("w");
  table_.Detach("w", old.generation + 1, "wrong");
  EXPECT_TRUE(ended_.empty());
  table_.Detach("w", old.generation, "closed");
  table_.Detach("w", old.generation, "process ended");
  EXPECT_THAT(ended_, ::testing::ElementsAre("w: closed"));
  const WorkloadInfo fresh = Put("w");
  table_.Detach("w", old.generation, "late");
  EXPECT_TRUE(table_.IsCurrent("w", fresh.generation));
  EXPECT_FALSE(table_.IsCurrent("w", old.generation));
  EXPECT_TRUE(FailsWith(Keep(old, 1), ErrorCode::kStaleGeneration));
  EXPECT_TRUE(FailsWith(table_.ReleaseFds("w", old.generation, {}), ErrorCode::kStaleGeneration));
}

TEST_F(WorkloadTableTest, ConcurrentEndsRunTheHandlerOnce) {
  for (int round = 0; round < 50; ++round) {
    std::atomic<int> ends = 0;
    WorkloadTable table({}, [&](const WorkloadInfo&, std::string_view) { ++ends; });
    const WorkloadInfo info = *table.Put("w", "engine", kOwner, milliseconds(1));
    std::vector<std::thread> threads;
    threads.emplace_back([&] { table.Detach("w", info.generation, "closed"); });
    threads.emplace_back([&] { (void)table.Remove("w", "deleted"); });
    threads.emplace_back([&] { table.ExpireLeases(Clock::now() + milliseconds(10)); });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(ends, 1);
  }
}

TEST_F(WorkloadTableTest, LeasesByTimeExpireAndAttachedOnesDoNot) {
  const TimePoint now = Clock::now();
  EXPECT_EQ(table_.ExpireLeases(now), TimePoint::max());
  const WorkloadInfo attached = *table_.Put("a", "engine", kOwner, milliseconds(10));
  ASSERT_TRUE(table_.Attach(attached.lease_token, 1, kOwner));
  ASSERT_TRUE(table_.Put("b", "engine", kOwner, milliseconds(1000)));
  ASSERT_TRUE(table_.Put("c", "engine", kOwner, milliseconds(3000)));
  const TimePoint next = table_.ExpireLeases(now + milliseconds(500));
  EXPECT_TRUE(ended_.empty());
  EXPECT_GE(next, now + milliseconds(1000));
  EXPECT_LT(next, now + milliseconds(2000));
  EXPECT_GE(table_.ExpireLeases(now + milliseconds(2000)), now + milliseconds(3000));
  EXPECT_THAT(ended_, ::testing::ElementsAre("b: its lease ran out"));
  EXPECT_EQ(table_.List().size(), 2u);
}

TEST_F(WorkloadTableTest, DescriptorsAreKeptAllOrNoneWithinBothBudgets) {
  const WorkloadInfo w = Put("w");
  const WorkloadInfo v = Put("v");
  const int before = OpenDescriptors();
  const auto tokens = Keep(w, 5);
  ASSERT_TRUE(tokens);
  EXPECT_EQ(OpenDescriptors(), before + 5);
  EXPECT_TRUE(FailsWith(Keep(w, 1), ErrorCode::kResourceExhausted));  // its own budget
  EXPECT_TRUE(FailsWith(Keep(v, 4), ErrorCode::kResourceExhausted));  // that of all
  EXPECT_EQ(OpenDescriptors(), before + 5);
  EXPECT_EQ(table_.Get("v")->fds_held, 0u);
  EXPECT_TRUE(Keep(v, 3));

  EXPECT_TRUE(FailsWith(table_.ReleaseFds("w", w.generation, {(*tokens)[0], RandomToken()}),
                        ErrorCode::kNotFound));
  EXPECT_EQ(table_.Get("w")->fds_held, 5u);
  EXPECT_TRUE(table_.ReleaseFds("w", w.generation, {(*tokens)[0], (*tokens)[0]}));
  EXPECT_EQ(table_.Get("w")->fds_held, 4u);
  EXPECT_TRUE(FailsWith(table_.FdByToken("w", (*tokens)[0]), ErrorCode::kNotFound));
  EXPECT_TRUE(FailsWith(table_.FdByToken("v", (*tokens)[1]), ErrorCode::kNotFound));
  EXPECT_TRUE(table_.FdByToken("w", (*tokens)[1]));
}

TEST_F(WorkloadTableTest, DescriptorInUseCountsUntilItIsClosed) {
  const WorkloadInfo w = Put("w");
  const int before = OpenDescriptors();
  const auto tokens = Keep(w, 5);
  auto used = *table_.FdByToken("w", (*tokens)[0]);
  ASSERT_TRUE(table_.ReleaseFds("w", w.generation, *tokens));
  EXPECT_EQ(table_.Get("w")->fds_held, 1u);
  EXPECT_EQ(OpenDescriptors(), before + 1);
  EXPECT_TRUE(FailsWith(Keep(w, 5), ErrorCode::kResourceExhausted));
  ASSERT_TRUE(table_.Remove("w", "deleted"));
  EXPECT_EQ(OpenDescriptors(), before + 1);
  EXPECT_EQ(table_.fds_held(), 1u) << "of a workload that is in no list any more";
  const WorkloadInfo v = Put("v");
  EXPECT_TRUE(Keep(v, 5));
  const WorkloadInfo u = Put("u");
  EXPECT_TRUE(FailsWith(Keep(u, 3), ErrorCode::kResourceExhausted));
  used.reset();  // the budget of all outlives the workload
  EXPECT_TRUE(Keep(u, 3));
}

TEST_F(WorkloadTableTest, EndingClosesWhatWasHandedOver) {
  const int before = OpenDescriptors();
  const WorkloadInfo w = Put("w");
  const auto tokens = Keep(w, 5);
  ASSERT_TRUE(table_.Remove("w", "deleted"));
  EXPECT_EQ(OpenDescriptors(), before);
  EXPECT_TRUE(FailsWith(table_.Remove("w", "deleted"), ErrorCode::kNotFound));
  EXPECT_TRUE(FailsWith(table_.FdByToken("w", (*tokens)[0]), ErrorCode::kNotFound));
  EXPECT_THAT(ended_, ::testing::ElementsAre("w: deleted"));
}

}  // namespace
}  // namespace gantry::registry
