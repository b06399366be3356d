// Buffers that are stale already at admission. A transfer that names them has them described again
// there. A transfer by view does not.
#include "lib/wire/view_request.h"
#include "sidecar/view/view_table.h"
#include "tests/sidecar/transfer/stale_retry_fixture.h"

namespace gantry::engine {
namespace {

class StaleAdmissionTest : public StaleRetryTest {
 protected:
  static wire::TransferRequest ByView(const std::string& id) {
    wire::TransferRequest request = Write();
    request.id = id;
    request.local.clear();
    request.remote.clear();
    request.ranges.clear();
    request.view = "v";
    request.by_blocks = true;
    request.local_blocks = {0};
    request.remote_blocks = {1};
    return request;
  }
};

TEST_F(StaleAdmissionTest, BuffersAreDescribedAgainOnlyOnce) {
  gateway_.stale_descriptions = 1;
  transport_->answer = [](uint64_t) { return Script{Stale(), false}; };
  const auto status = engine_->Submit(Write(), In(milliseconds(3'000)));
  ASSERT_TRUE(status) << status.error().message;
  EXPECT_EQ(status->state, TransferState::kFailed);
  EXPECT_EQ(status->error->code, ErrorCode::kStaleGeneration);
  EXPECT_EQ(status->retries, 1);
  EXPECT_EQ(transport_->starts, 1);
  EXPECT_EQ(gateway_.refreshes, 1);
  EXPECT_TRUE(HasMetric("\"stale_generation\"} 1"));
}

TEST_F(StaleAdmissionTest, APathThatIsLostAfterwardsIsStillLeftForAnother) {
  gateway_.stale_descriptions = 1;
  faster_->answer = [](uint64_t) {
    return Script{Error(ErrorCode::kPathUnavailable, "the peer lends nothing"), false};
  };
  transport_->answer = [](uint64_t) { return Script{}; };
  wire::TransferRequest request = Write();
  request.require_path = {};
  const auto status = engine_->Submit(request, In(milliseconds(3'000)));
  ASSERT_TRUE(status) << status.error().message;
  EXPECT_EQ(status->state, TransferState::kSucceeded);
  EXPECT_EQ(status->path, wire::Path::kTcp);
  EXPECT_EQ(status->retries, 1);
  EXPECT_EQ(faster_->starts, 1);
  EXPECT_EQ(transport_->starts, 1);
}

// The transfer keeps its own retry.
TEST_F(StaleAdmissionTest, AViewThatIsOutOfDateIsRenewedAndCountsAsNoRetry) {
  wire::ViewRequest view;
  view.id = "v";
  view.workload = "w";
  view.peer = "peer";
  view.remote_workload = "owner";
  view.groups.push_back({0, {{{"", "", "blocks", 0}, {"peer", "owner", "blocks", 0}}}, {}, {}});
  bool is_new = false;
  const auto made = engine_->views().Make(view, In(milliseconds(1'000)), &is_new);
  ASSERT_TRUE(made) << made.error().message;
  transport_->answer = [](uint64_t) { return Script{}; };
  gateway_.generation = 2;
  auto status = engine_->Submit(ByView("first"), In(milliseconds(3'000)));
  ASSERT_TRUE(status) << status.error().message;
  EXPECT_EQ(status->state, TransferState::kSucceeded);
  EXPECT_EQ(status->retries, 0);
  EXPECT_EQ(gateway_.refreshes, 0);

  gateway_.generation = 3;
  transport_->answer = [](uint64_t generation) {
    return generation == 3 ? Script{Stale(), false} : Script{};
  };
  status = engine_->Submit(ByView("second"), In(milliseconds(3'000)));
  ASSERT_TRUE(status) << status.error().message;
  EXPECT_EQ(status->state, TransferState::kSucceeded);
  EXPECT_EQ(status->retries, 1);
  EXPECT_EQ(gateway_.refreshes, 1);
  EXPECT_EQ(transport_->starts, 3);
  EXPECT_TRUE(HasMetric("\"stale_generation\"} 1"));
}

}  // namespace
}  // namespace gantry::engine
