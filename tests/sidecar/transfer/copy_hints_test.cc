// The copy scheduler is told and asked about transfers by ipc, and about no others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "tests/fakes/engine_fixture.h"
#include "tests/fakes/quick_path.h"

namespace gantry::engine {
namespace {

using ::gantry::testing::EngineFixture;
using ::gantry::testing::In;
using ::gantry::testing::QuickPath;
using ::gantry::testing::TestArena;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr uint64_t kHintedBytes = 64 << 10;
constexpr uint64_t kHintedBlock = 4 << 10;

class RecordingHints final : public transport::CopyHints {
 public:
  void Foresee() override { ++foreseen; }
  void Expect(size_t count) override { named.push_back(count); }
  transport::RowLimits RowsOf(
      const std::vector<std::shared_ptr<const memory::MappedAllocation>>& local,
      const std::vector<transport::RemoteAllocation>& remote) const override {
    EXPECT_EQ(local.size(), 1U);
    EXPECT_EQ(remote.size(), 1U);
    ++asked;
    return {};
  }

  int foreseen = 0;
  mutable int asked = 0;
  std::vector<size_t> named;
};

class CopyHintsTest : public EngineFixture {
 protected:
  void SetUp() override {
    AddWorkload("w");
    AddWorkload("other");
    ASSERT_TRUE(Register("w", {&here_}, {{"kv", {{0, 0, kHintedBytes}}, {}}}));
    ASSERT_TRUE(Register("other", {&there_}, {{"kv", {{0, 0, kHintedBytes}}, {}}}));
  }
  void TearDown() override { engine_.reset(); }

  void MoveBy(wire::Path path) {
    engine_.reset();
    std::vector<std::unique_ptr<transport::Transport>> transports;
    transports.push_back(std::make_unique<QuickPath>(path));
    engine_ = std::make_unique<TransferEngine>(engine_options_, pool_, hints_,
                                               std::move(transports), registry_, events_, metrics_);
    auto request = Between("w", "kv", "other", "kv");
    for (const uint64_t at : {0, 2, 4}) {
      request = WithRange(std::move(request), at * kHintedBlock, at * kHintedBlock, kHintedBlock);
    }
    const auto status = engine_->Submit(std::move(request), In(milliseconds(3'000)));
    ASSERT_TRUE(status) << status.error().message;
    EXPECT_EQ(status->state, TransferState::kSucceeded);
    EXPECT_EQ(status->path, path);
  }

  const TestArena here_{kHintedBytes};
  const TestArena there_{kHintedBytes};
  RecordingHints hints_;
};

TEST_F(CopyHintsTest, TransfersByIpcAreExpectedAndTheirRowsAskedFor) {
  MoveBy(wire::Path::kIpc);
  EXPECT_THAT(hints_.named, ElementsAre(3));
  EXPECT_EQ(hints_.asked, 1);
}

TEST_F(CopyHintsTest, OtherPathsArePlannedWithoutThem) {
  for (const wire::Path path : {wire::Path::kShm, wire::Path::kTcp, wire::Path::kRdma}) {
    MoveBy(path);
  }
  EXPECT_THAT(hints_.named, IsEmpty());
  EXPECT_EQ(hints_.asked, 0);
}

TEST_F(CopyHintsTest, ARequestIsForeseenBeforeItIsRead) {
  MoveBy(wire::Path::kShm);
  EXPECT_EQ(hints_.foreseen, 0) << "the reader of requests says so";
  engine_->Foresee();
  EXPECT_EQ(hints_.foreseen, 1);
}

}  // namespace
}  // namespace gantry::engine
