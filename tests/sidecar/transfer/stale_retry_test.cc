// A transfer that its peer refuses as stale is described and begun again, once, and not before
// everything of the first attempt is quiet.
#include <thread>

#include "tests/sidecar/transfer/stale_retry_fixture.h"

namespace gantry::engine {
namespace {

TEST_F(StaleRetryTest, AFreshDescriptionIsTried) {
  const auto status = engine_->Submit(Write(), In(milliseconds(3'000)));
  ASSERT_TRUE(status) << status.error().message;
  EXPECT_EQ(status->state, TransferState::kSucceeded);
  EXPECT_EQ(status->retries, 1);
  EXPECT_EQ(status->chunks_moved, 1u);
  EXPECT_FALSE(status->error);
  EXPECT_EQ(gateway_.refreshed, std::vector<uint64_t>{1});
  EXPECT_EQ(transport_->starts, 2);
  EXPECT_TRUE(HasMetric("\"stale_generation\"} 1"));
  const auto known = engine_->Submit(Write(), In(milliseconds(3'000)));
  ASSERT_TRUE(known) << "the same id with the same content is the same transfer";
  EXPECT_EQ(transport_->starts, 2);
}

TEST_F(StaleRetryTest, APathThatWasLostIsNotTakenAgain) {
  const Error lost(ErrorCode::kPathUnavailable, "the peer lends nothing");
  faster_->answer = [&](uint64_t) { return Script{lost, false}; };
  wire::TransferRequest request = Write(/*generation=*/1);  // nor is another buffer
  request.require_path = {};
  transport_->answer = [](uint64_t) { return Script{}; };
  const auto status = engine_->Submit(request, In(milliseconds(3'000)));
  ASSERT_TRUE(status) << status.error().message;
  EXPECT_EQ(status->state, TransferState::kSucceeded);
  EXPECT_EQ(status->path, wire::Path::kTcp);
  EXPECT_EQ(status->retries, 1);
  for (const wire::PathReport& report : status->paths) {
    if (report.path != wire::Path::kBounce) continue;
    EXPECT_EQ(report.reason, lost.message);
  }
  EXPECT_EQ(faster_->starts, 1);
  EXPECT_EQ(gateway_.refreshes, 0);
  EXPECT_TRUE(HasMetric("\"path_unavailable\"} 1"));
  EXPECT_TRUE(HasLine("gantry_path_selected_total{path=\"tcp\"} 1"));
  EXPECT_TRUE(
      HasLine(R"(gantry_transport_errors_total{path="bounce",reason="path_unavailable"} 1)"));
}

TEST_F(StaleRetryTest, APathThatWasLostAndIsTheOnlyOneAllowedFailsTheTransfer) {
  const Error lost(ErrorCode::kPathUnavailable, "the peer lends nothing");
  faster_->answer = [&](uint64_t) { return Script{lost, false}; };
  wire::TransferRequest request = Write();
  request.require_path = {wire::Path::kBounce};
  const auto status = engine_->Submit(request, In(milliseconds(3'000)));
  ASSERT_TRUE(status) << status.error().message;
  EXPECT_EQ(status->state, TransferState::kFailed);
  EXPECT_EQ(status->error->message, lost.message);
  EXPECT_EQ(faster_->starts, 1);
  EXPECT_EQ(transport_->starts, 0);
}

TEST_F(StaleRetryTest, OnceOnly) {
  transport_->answer = [](uint64_t) { return Script{Stale(), false}; };
  const auto status = engine_->Submit(Write(), In(milliseconds(3'000)));
  ASSERT_TRUE(status) << status.error().message;
  EXPECT_EQ(status->state, TransferState::kFailed);
  ASSERT_TRUE(status->error);
  EXPECT_EQ(status->error->code, ErrorCode::kStaleGeneration);
  EXPECT_EQ(status->retries, 1);
  EXPECT_EQ(transport_->starts, 2);
  EXPECT_EQ(gateway_.refreshes, 1);
  ASSERT_NE(status->failed_items, nullptr);
}

TEST_F(StaleRetryTest, NotWhileBytesOfTheFirstAttemptMayMove) {
  transport_->answer = [](uint64_t generation) {
    return generation == 1 ? Script{Stale(), true} : Script{};
  };
  auto status = engine_->Submit(Write(), In(milliseconds(200)));
  ASSERT_TRUE(status) << status.error().message;
  EXPECT_EQ(status->state, TransferState::kStopping);
  EXPECT_EQ(transport_->starts, 1);
  EXPECT_EQ(gateway_.refreshes, 0);
  transport_->moving->store(false);
  pool_.WakeWaiter();
  status = engine_->Get("w", "t", In(milliseconds(3'000)));
  ASSERT_TRUE(status);
  EXPECT_EQ(status->state, TransferState::kSucceeded);
  EXPECT_EQ(transport_->starts, 2);
}

TEST_F(StaleRetryTest, NotOfAGenerationThatTheCallerNamed) {
  const auto status = engine_->Submit(Write(1), In(milliseconds(3'000)));
  ASSERT_TRUE(status) << status.error().message;
  EXPECT_EQ(status->state, TransferState::kFailed);
  EXPECT_EQ(status->error->code, ErrorCode::kStaleGeneration);
  EXPECT_EQ(status->retries, 0);
  EXPECT_EQ(gateway_.refreshes, 0);
}

TEST_F(StaleRetryTest, NotAfterAnotherFailure) {
  transport_->answer = [](uint64_t) {
    return Script{Error(ErrorCode::kPermissionDenied, "no"), false};
  };
  const auto status = engine_->Submit(Write(), In(milliseconds(3'000)));
  ASSERT_TRUE(status) << status.error().message;
  EXPECT_EQ(status->error->code, ErrorCode::kPermissionDenied);
  EXPECT_EQ(status->retries, 0);
  EXPECT_TRUE(HasLine(R"(gantry_access_errors_total{path="tcp",reason="permission"} 1)"));
}

TEST_F(StaleRetryTest, EachAttemptThatFailsIsCountedUnlessItsPathDidSo) {
  const auto refused = [](uint64_t) { return Script{Stale(), false}; };
  transport_->answer = refused;
  ASSERT_TRUE(engine_->Submit(Write(), In(milliseconds(3'000))));
  const std::string line = R"(gantry_access_errors_total{path="tcp",reason="stale_generation"} )";
  EXPECT_TRUE(HasLine(line + "2"));
  transport_->counts_errors = true;
  wire::TransferRequest another = Write();
  another.id = "another";
  ASSERT_TRUE(engine_->Submit(another, In(milliseconds(3'000))));
  EXPECT_EQ(transport_->starts, 4);
  EXPECT_TRUE(HasLine(line + "2"));
}

TEST_F(StaleRetryTest, WhatIsGoneFailsAsItWasRefused) {
  transport_->answer = [this](uint64_t) {
    gateway_.gone = true;
    return Script{Stale(), false};
  };
  const auto status = engine_->Submit(Write(), In(milliseconds(3'000)));
  ASSERT_TRUE(status) << status.error().message;
  EXPECT_EQ(status->state, TransferState::kFailed);
  EXPECT_EQ(status->error->code, ErrorCode::kStaleGeneration);
  EXPECT_EQ(status->retries, 0) << "it was not begun again";
  EXPECT_FALSE(HasMetric("\"stale_generation\"} 1"));
  EXPECT_EQ(transport_->starts, 1);
}

TEST_F(StaleRetryTest, OneThatWaitsForItsFenceIsNotBegun) {
  TestArena counter(4096, 0);
  ASSERT_TRUE(Register("w", {&counter}, {{"clock", {{0, 0, 4096}}, {}}}));
  wire::TransferRequest request = Write();
  request.fence = wire::TimelineFence{true, {"", "", "clock", 0}, 0, 1};
  auto status = engine_->Submit(request, In(milliseconds(0)));
  ASSERT_TRUE(status) << status.error().message;
  engine_->StopTransfersUsing(gateway_.last, Error(ErrorCode::kPeerLost, "it went"));
  status = engine_->Get("w", "t", In(milliseconds(2'000)));
  ASSERT_TRUE(status);
  EXPECT_EQ(status->state, TransferState::kFailed);
  EXPECT_EQ(status->error->code, ErrorCode::kPeerLost);
  EXPECT_EQ(transport_->starts, 0) << "nobody said that its bytes are there";
}

TEST_F(StaleRetryTest, ABufferHereThatWasReplacedMeanwhileIsLeftAlone) {
  gateway_.hold = true;
  ASSERT_TRUE(engine_->Submit(Write(), In(milliseconds(0))));
  while (gateway_.refreshes == 0) std::this_thread::yield();
  ASSERT_TRUE(registry_.Remove(buffer_id_, In(milliseconds(2'000))));
  TestArena other(kRetriedBytes);
  ASSERT_TRUE(Register("w", {&other}, {{"k", {{0, 0, kRetriedBytes}}, {}}}));
  gateway_.hold = false;
  const auto status = engine_->Get("w", "t", In(milliseconds(2'000)));
  ASSERT_TRUE(status);
  EXPECT_EQ(status->state, TransferState::kFailed);
  EXPECT_EQ(transport_->starts, 1);
}

TEST_F(StaleRetryTest, APeersNameThatWasGivenToAnotherIsNotTheSamePeer) {
  transport_->answer = [this](uint64_t) {
    ++gateway_.peer_registration_id;
    return Script{Stale(), false};
  };
  const auto status = engine_->Submit(Write(), In(milliseconds(3'000)));
  ASSERT_TRUE(status) << status.error().message;
  EXPECT_EQ(status->state, TransferState::kFailed);
  EXPECT_EQ(transport_->starts, 1);
}

// After a reconnection the same registration is there under another handle.
TEST_F(StaleRetryTest, OnlyTransfersOverThisHandleAreStopped) {
  transport_->answer = [](uint64_t) { return Script{std::nullopt, true}; };
  ASSERT_TRUE(engine_->Submit(Write(), In(milliseconds(0))));
  auto another = std::make_shared<RemoteBuffer>();
  another->reference = gateway_.last->reference;
  engine_->StopTransfersUsing(another, Error(ErrorCode::kPeerLost, "the session before"));
  EXPECT_EQ(engine_->Get("w", "t", In(milliseconds(100)))->state, TransferState::kRunning);
}

TEST_F(StaleRetryTest, ACancelEndsItWhileItIsDescribedAgain) {
  gateway_.hold = true;
  ASSERT_TRUE(engine_->Submit(Write(), In(milliseconds(0))));
  while (gateway_.refreshes == 0) std::this_thread::yield();
  EXPECT_EQ(engine_->Get("w", "t", In(milliseconds(0)))->state, TransferState::kRunning);
  const auto status = engine_->Cancel("w", "t", In(milliseconds(2'000)));
  ASSERT_TRUE(status);
  EXPECT_EQ(status->state, TransferState::kCancelled);
  gateway_.hold = false;
  engine_->StopRetries();
  EXPECT_EQ(transport_->starts, 1);
}

TEST_F(StaleRetryTest, TheDeadlineHoldsWhileItIsDescribedAgain) {
  gateway_.hold = true;
  wire::TransferRequest request = Write();
  request.deadline_ms = 100;
  const TimePoint begin = Clock::now();
  const auto status = engine_->Submit(request, In(milliseconds(3'000)));
  ASSERT_TRUE(status);
  EXPECT_EQ(status->state, TransferState::kFailed);
  EXPECT_LT(Clock::now() - begin, milliseconds(1'500));
}

}  // namespace
}  // namespace gantry::engine
