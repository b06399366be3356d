// A transfer that its peer refuses as stale is described and begun again, once, and not before
// everything of the first attempt is quiet.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <functional>
#include <thread>

#include "sidecar/transfer/transfer_engine.h"
#include "tests/fakes/engine_fixture.h"
#include "tests/fakes/willing_transport.h"

namespace gantry::engine {
namespace {

using ::gantry::testing::EngineFixture;
using ::gantry::testing::In;
using ::gantry::testing::TestArena;

constexpr uint64_t kRetriedBytes = 64 << 10;

struct Target final : transport::RemoteTarget {
  explicit Target(uint64_t generation_in) : generation(generation_in) {}
  uint64_t length() const override { return kRetriedBytes; }
  const uint64_t generation;
};

// What a test lets the peer do with one attempt.
struct Script {
  std::optional<Error> refusal;  // none: everything is moved
  bool moving = false;           // bytes may still move
};

class ScriptedOperation final : public transport::Operation {
 public:
  ScriptedOperation(std::shared_ptr<std::atomic<bool>> moving, std::optional<Error> error,
                    bool is_counted)
      : moving_(std::move(moving)), error_(std::move(error)) {
    progress_.error_is_counted = is_counted;
    progress_.chunks_total = 1;
    progress_.chunks = error_ ? 0 : 1;
    progress_.first_posted = Clock::now();
  }
  void Stop() override {}
  void Abort() override {}
  bool finished() const override { return !*moving_; }
  const std::optional<Error>& error() const override { return error_; }
  const transport::Progress& progress() const override { return progress_; }
  std::vector<uint32_t> UnfinishedItems() const override { return {0}; }

 private:
  const std::shared_ptr<std::atomic<bool>> moving_;
  const std::optional<Error> error_;
  transport::Progress progress_;
};

class ScriptedTransport final : public testing::WillingTransport {
 public:
  explicit ScriptedTransport(wire::Path path = wire::Path::kTcp)
      : WillingTransport({.path = path, .addresses_buffers = true}) {}
  std::unique_ptr<transport::Operation> Start(std::shared_ptr<const transport::MovePlan> plan, int,
                                              uint64_t token) override {
    const auto& target = static_cast<const Target&>(*plan->remote.front().target);
    const Script script = answer(target.generation);
    ++starts;
    moving->store(script.moving);
    token_ = token;
    return std::make_unique<ScriptedOperation>(moving, script.refusal, counts_errors);
  }
  transport::PollOutcome Poll(std::vector<uint64_t>* ready_tokens) override {
    ready_tokens->push_back(token_);
    return {.poll_interval = milliseconds(1)};
  }

  std::function<Script(uint64_t generation)> answer;
  std::atomic<bool> counts_errors{false};
  std::atomic<int> starts{0};
  const std::shared_ptr<std::atomic<bool>> moving = std::make_shared<std::atomic<bool>>(false);

 private:
  uint64_t token_ = 0;  // of the newest
};

// The buffer has a generation more after each refresh.
class FakeGateway final : public PeerGateway {
 public:
  Result<std::vector<std::shared_ptr<const RemoteBuffer>>> Acquire(
      const std::string& peer, const std::vector<wire::BufferReference>& references,
      engine::RemoteUse, TimePoint) override {
    if (gone) return Fail(ErrorCode::kUnregistered, "there is no such buffer any more");
    auto buffer = std::make_shared<RemoteBuffer>();
    buffer->reference = {peer, "owner", references.front().buffer, generation};
    buffer->peer_registration_id = peer_registration_id;
    buffer->length = kRetriedBytes;
    buffer->access = {true, true};
    buffer->pieces = *memory::PieceMap::Create({{0, 0, kRetriedBytes}}, std::array{kRetriedBytes});
    buffer->flat = buffer->pieces;
    buffer->allocations = {{}};
    buffer->target = std::make_shared<Target>(generation);
    for (int i = 0; i < wire::kPathCount; ++i) {
      buffer->paths.push_back({static_cast<wire::Path>(i), true, ""});
    }
    last = buffer;
    return std::vector<std::shared_ptr<const RemoteBuffer>>{buffer};
  }
  void Refresh(const std::string&, const std::vector<uint64_t>& stale, const Error&,
               TimePoint) override {
    refreshed = stale;
    ++refreshes;
    ++generation;
    while (hold) std::this_thread::sleep_for(milliseconds(1));
  }

  std::atomic<uint64_t> generation{1};
  std::atomic<int> refreshes{0};
  std::atomic<bool> hold{false}, gone{false};
  std::atomic<uint64_t> peer_registration_id{1};
  std::vector<uint64_t> refreshed;
  std::shared_ptr<const RemoteBuffer> last;  // handed out
};

class StaleRetryTest : public EngineFixture {
 protected:
  void SetUp() override {
    auto faster = std::make_unique<ScriptedTransport>(wire::Path::kBounce);
    auto transport = std::make_unique<ScriptedTransport>();
    faster_ = faster.get();
    transport_ = transport.get();
    std::vector<std::unique_ptr<transport::Transport>> transports;
    transports.push_back(std::move(faster));
    transports.push_back(std::move(transport));
    engine_ = std::make_unique<TransferEngine>(engine_options_, pool_, copies_.hints(),
                                               std::move(transports), registry_, events_, metrics_);
    engine_->SetPeerGateway(&gateway_);
    AddWorkload("w");
    const auto registered = Register("w", {&arena_}, {{"k", {{0, 0, kRetriedBytes}}, {}}});
    ASSERT_TRUE(registered);
    buffer_id_ = registered->front()->description().id;
    transport_->answer = [](uint64_t generation) {
      return generation == 1 ? Script{Stale(), false} : Script{};
    };
  }
  void TearDown() override {
    gateway_.hold = false;
    transport_->moving->store(false);
    engine_.reset();
  }

  static Error Stale() { return {ErrorCode::kStaleGeneration, "the buffer was registered anew"}; }
  static wire::TransferRequest Write(uint64_t generation = 0) {
    wire::TransferRequest request;
    request.id = "t";
    request.workload = "w";
    request.operation = wire::Operation::kWrite;
    request.local.push_back({"", "", "k", 0});
    request.remote.push_back({"peer", "owner", "k", generation});
    request.ranges.push_back({0, 0, 0, 0, kRetriedBytes});
    request.deadline_ms = 3'000;
    request.require_path = {wire::Path::kTcp};
    return request;
  }
  bool HasMetric(const std::string& line) {
    return HasLine("gantry_transfer_retries_total{reason=" + line);
  }
  bool HasLine(const std::string& line) {
    return metrics_.Text().find(line + "\n") != std::string::npos;
  }

  TestArena arena_{kRetriedBytes};
  std::string buffer_id_;
  FakeGateway gateway_;
  ScriptedTransport* transport_ = nullptr;
  ScriptedTransport* faster_ = nullptr;  // taken by those that do not say which
};

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
