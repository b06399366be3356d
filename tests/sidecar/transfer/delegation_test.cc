// Transfers that the peer executes, as the engine sees them: when, with what, and how they end.
#include "sidecar/transfer/delegation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <functional>
#include <thread>

#include "sidecar/transfer/unmoved_operation.h"
#include "tests/fakes/engine_fixture.h"
#include "tests/fakes/willing_transport.h"

namespace gantry::testing {
namespace {

using engine::PeerExecutor;
using engine::RemoteBuffer;
using engine::TransferState;

constexpr uint64_t kWhole = 1 << 20;  // bytes of each buffer
constexpr uint64_t kBlock = 4096;

// A peer's buffer that no path leads to from here.
class UnreachableBuffer final : public engine::PeerGateway {
 public:
  Result<std::vector<std::shared_ptr<const RemoteBuffer>>> Acquire(
      const std::string& peer, const std::vector<wire::BufferReference>& references,
      engine::RemoteUse use, TimePoint) override {
    used_for = use;
    std::vector<std::shared_ptr<const RemoteBuffer>> found;
    for (const wire::BufferReference& reference : references) {
      auto buffer = std::make_shared<RemoteBuffer>();
      buffer->reference = {peer, "owner", reference.buffer, 7};
      buffer->length = kWhole;
      buffer->access = {true, true};
      buffer->layout = wire::BlockLayout{kBlock, kBlock, kWhole / kBlock};
      // In two allocations: what is asked of the peer names bytes of the buffer.
      buffer->pieces = *memory::PieceMap::Create({{0, kBlock, kWhole / 2}, {1, 0, kWhole / 2}},
                                                 std::array{kWhole, kWhole});
      buffer->allocations = {{}, {}};
      for (int i = 0; i < wire::kPathCount; ++i) {
        buffer->paths.push_back({static_cast<wire::Path>(i), i != 0, i != 0 ? "" : "no GPU"});
      }
      if (sees_gpus) {
        buffer->peer_gpus = std::make_shared<const std::vector<std::string>>(1, "GPU-1");
        buffer->paths[0] = {wire::Path::kIpc, true, ""};
        buffer->paths[1] = {wire::Path::kShm, false, "GPU memory"};
        buffer->flat = *memory::PieceMap::Create({{0, 0, kWhole}}, std::array{kWhole});
        buffer->target = std::make_shared<Target>();
      }
      found.push_back(std::move(buffer));
    }
    return found;
  }
  void Refresh(const std::string&, const std::vector<uint64_t>&, const Error&, TimePoint) override {
  }

  struct Target final : transport::RemoteTarget {
    uint64_t length() const override { return kWhole; }
  };
  bool sees_gpus = false;
  std::atomic<engine::RemoteUse> used_for{engine::RemoteUse::kMove};
};

class FakeExecutor final : public PeerExecutor {
 public:
  Status CanExecute(const std::string&) const override { return can; }
  std::unique_ptr<Execution> Execute(const std::string& peer, int,
                                     std::function<wire::PeerExecution()> make, TimePoint,
                                     std::shared_ptr<Watcher> told) override {
    asked_peer = peer;
    asked = make();
    watcher = std::move(told);
    ++executions;
    if (on_execute) on_execute(*watcher);
    class Handle final : public Execution {
     public:
      explicit Handle(std::atomic<int>& stops) : stops_(stops) {}
      void Stop() override { ++stops_; }

     private:
      std::atomic<int>& stops_;
    };
    return std::make_unique<Handle>(stops);
  }

  Status can;
  std::function<void(Watcher&)> on_execute;
  std::string asked_peer;
  wire::PeerExecution asked;
  std::shared_ptr<Watcher> watcher;
  std::atomic<int> executions{0}, stops{0};
};

class DelegationTest : public EngineFixture {
 protected:
  void SetUp() override {
    engine_ = std::make_unique<engine::TransferEngine>(
        engine_options_, pool_, copies_.hints(),
        std::vector<std::unique_ptr<transport::Transport>>{}, registry_, events_, metrics_);
    engine_->SetPeerGateway(&gateway_);
    engine_->SetPeerExecutor(&executor_);
    AddWorkload("w");
    ASSERT_TRUE(
        Register("w", {&arena_},
                 {{"k", {{0, 0, kWhole}}, wire::BlockLayout{kBlock, kBlock, kWhole / kBlock}},
                  {"private", {{0, 0, kWhole}}, std::nullopt, {false, false}}}));
  }
  void TearDown() override { engine_.reset(); }

  static wire::TransferRequest Read(wire::Executor executor = wire::Executor::kAny) {
    wire::TransferRequest request;
    request.id = "t";
    request.workload = "w";
    request.local.push_back({"", "", "k", 0});
    request.remote.push_back({"peer", "owner", "k", 0});
    request.ranges.push_back({0, 0, 0, 8192, kWhole / 2});
    request.executor = executor;
    request.deadline_ms = 3'000;
    return request;
  }
  static void Succeed(PeerExecutor::Watcher& watcher) { watcher.OnEnded({std::nullopt, 0}); }
  Result<engine::TransferStatus> Submit(const wire::TransferRequest& request,
                                        int wait_ms = 30'000) {
    return engine_->Submit(request, In(milliseconds(wait_ms)));
  }

  TestArena arena_{kWhole};
  UnreachableBuffer gateway_;
  FakeExecutor executor_;
};

TEST_F(DelegationTest, ThePeerIsAskedWhenNoPathLeadsThereFromHere) {
  executor_.on_execute = Succeed;
  const auto status = Submit(Read());
  ASSERT_TRUE(status) << status.error().message;
  EXPECT_EQ(status->state, TransferState::kSucceeded);
  EXPECT_TRUE(status->executed_by_peer);
  EXPECT_EQ(status->bytes_moved, kWhole / 2);
  EXPECT_EQ(status->chunks_moved, status->chunks);
  EXPECT_EQ(executor_.asked_peer, "peer");
  EXPECT_EQ(executor_.asked.operation, wire::Operation::kRead);
  ASSERT_EQ(executor_.asked.callers.size(), 1u);
  EXPECT_EQ(executor_.asked.callers[0].workload, "w");
  EXPECT_EQ(executor_.asked.callers[0].buffer, "k");
  EXPECT_NE(executor_.asked.callers[0].generation, 0u);
  ASSERT_EQ(executor_.asked.callees.size(), 1u);
  EXPECT_EQ(executor_.asked.callees[0], (wire::BufferReference{"", "owner", "k", 7}));
  // Over a seam of the peer's pieces: it is the peer that adds offsets of pieces.
  ASSERT_EQ(executor_.asked.ranges.size(), 1u);
  EXPECT_EQ(executor_.asked.ranges[0], (wire::TransferRange{0, 0, 0, 8192, kWhole / 2}));
  EXPECT_EQ(gateway_.used_for, engine::RemoteUse::kMove) << "it was to be moved from here";
}

TEST_F(DelegationTest, WhoWantsThisSidecarGetsNoOther) {
  const auto status = Submit(Read(wire::Executor::kSelf));
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kPathUnavailable);
  EXPECT_EQ(executor_.executions, 0);
}

TEST_F(DelegationTest, WhereThePeerCannotEitherThePathIsTheReason) {
  executor_.can = Fail(ErrorCode::kPeerUnavailable, "no session back", "PUT it there");
  auto status = Submit(Read());
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kPathUnavailable);
  status = Submit(Read(wire::Executor::kPeer));
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kPeerUnavailable);
  EXPECT_EQ(status.error().field, "/executor");
  EXPECT_EQ(executor_.executions, 0);
}

TEST_F(DelegationTest, WhereNeitherHasAPathTheReasonsOfBothAreTold) {
  executor_.on_execute = [](PeerExecutor::Watcher& watcher) {
    watcher.OnEnded({Error(ErrorCode::kPathUnavailable, "peer: no GPU there"), 0});
  };
  const auto status = Submit(Read());
  ASSERT_TRUE(status) << status.error().message;
  ASSERT_TRUE(status->error);
  EXPECT_EQ(status->error->code, ErrorCode::kPathUnavailable);
  EXPECT_TRUE(status->error->message.starts_with("peer: no GPU there; this sidecar: no path"))
      << status->error->message;
  wire::TransferRequest by_peer = Read(wire::Executor::kPeer);
  by_peer.id = "t2";
  const auto other = Submit(by_peer);
  ASSERT_TRUE(other) << other.error().message;
  ASSERT_TRUE(other->error);
  EXPECT_EQ(other->error->message, "peer: no GPU there") << "this sidecar was not asked";
}

TEST_F(DelegationTest, ThePeerGetsNothingThatIsNotGranted) {
  wire::TransferRequest request = Read(wire::Executor::kPeer);
  request.local.front().buffer = "private";
  const auto status = Submit(request);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kPermissionDenied);
  EXPECT_EQ(status.error().field, "/local/0");
  EXPECT_EQ(executor_.executions, 0);
}

TEST_F(DelegationTest, BlocksThatLieSideBySideAreOneRange) {
  executor_.on_execute = Succeed;
  wire::TransferRequest request = Read(wire::Executor::kPeer);
  request.ranges.clear();
  request.by_blocks = true;
  request.local_blocks = {0, 1, 2, 9};
  request.remote_blocks = {4, 5, 6, 1};
  const auto status = Submit(request);
  ASSERT_TRUE(status) << status.error().message;
  EXPECT_EQ(status->state, TransferState::kSucceeded);
  const std::vector<wire::TransferRange> expected = {{0, 0, 0, 4 * kBlock, 3 * kBlock},
                                                     {0, 9 * kBlock, 0, kBlock, kBlock}};
  EXPECT_EQ(executor_.asked.ranges, expected);
  EXPECT_EQ(gateway_.used_for, engine::RemoteUse::kName);
}

// Admission lets go of a peer's buffers before the plan is made, whose errors name them.
TEST_F(DelegationTest, WhatDoesNotFitNamesThePeersBuffer) {
  wire::TransferRequest request = Read(wire::Executor::kPeer);
  request.ranges = {{0, 0, 0, kWhole - 1, 2}};
  auto status = Submit(request);
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message, ::testing::HasSubstr("'peer/owner/k@"));
  request.ranges.clear();
  request.by_blocks = true;
  request.local_blocks = {0};
  request.remote_blocks = {kWhole / kBlock};
  status = Submit(request);
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message, ::testing::HasSubstr("'peer/owner/k@"));
}

TEST_F(DelegationTest, ThePathIsThePeersOwn) {
  executor_.on_execute = [](PeerExecutor::Watcher& watcher) {
    watcher.OnAccepted(wire::Path::kTcp, {{wire::Path::kShm, false, "not mapped there"},
                                          {wire::Path::kTcp, true, ""}});
    watcher.OnProgress(4096);
  };
  auto status = Submit(Read(), 0);
  ASSERT_TRUE(status);
  for (int i = 0; i < 1000 && status->bytes_moved == 0; ++i) {
    std::this_thread::sleep_for(milliseconds(1));
    status = engine_->Get("w", "t", Clock::now());
  }
  EXPECT_EQ(status->state, TransferState::kRunning);
  EXPECT_EQ(status->bytes_moved, 4096u);
  EXPECT_EQ(status->path, wire::Path::kTcp);
  ASSERT_EQ(status->paths.size(), 2u);
  EXPECT_EQ(status->paths[0].reason, "not mapped there");
  Succeed(*executor_.watcher);
  status = engine_->Get("w", "t", In(milliseconds(3'000)));
  EXPECT_EQ(status->state, TransferState::kSucceeded);
  EXPECT_NE(metrics_.Text().find("gantry_transfers_total"), std::string::npos);
}

TEST_F(DelegationTest, ACancelWaitsForThePeersWord) {
  ASSERT_TRUE(Submit(Read(), 0));
  auto status = engine_->Cancel("w", "t", In(milliseconds(100)));
  ASSERT_TRUE(status);
  EXPECT_EQ(status->state, TransferState::kStopping);
  EXPECT_EQ(executor_.stops, 1);
  executor_.watcher->OnEnded({Error(ErrorCode::kCancelled, "stopped"), 4096});
  status = engine_->Get("w", "t", In(milliseconds(3'000)));
  ASSERT_TRUE(status);
  EXPECT_EQ(status->state, TransferState::kCancelled);
  EXPECT_EQ(status->bytes_moved, 4096u);
  ASSERT_NE(status->failed_items, nullptr);
  EXPECT_EQ(*status->failed_items, std::vector<uint32_t>{0});
}

TEST_F(DelegationTest, AFailureIsThePeersAndEveryItemMayBeMissing) {
  executor_.on_execute = [](PeerExecutor::Watcher& watcher) {
    watcher.OnProgress(UINT64_MAX);
    watcher.OnEnded({Error(ErrorCode::kPeerLost, "it went away"), UINT64_MAX});
  };
  const auto status = Submit(Read());
  ASSERT_TRUE(status);
  EXPECT_EQ(status->state, TransferState::kFailed);
  EXPECT_EQ(status->error->code, ErrorCode::kPeerLost);
  EXPECT_EQ(status->bytes_moved, kWhole / 2) << "a peer's numbers are not believed beyond that";
  ASSERT_NE(status->failed_items, nullptr);
  EXPECT_EQ(status->failed_items->size(), 1u);
}

// As the layers of a KV cache: views of one allocation here, of another there.
TEST_F(DelegationTest, BuffersOfOneAllocationDoNotCollide) {
  ASSERT_TRUE(Register("w", {&arena_},
                       {{"v", {{0, 0, kWhole / 2}}, std::nullopt},
                        {"u", {{0, kWhole / 2, kWhole / 2}}, std::nullopt}}));
  for (const auto operation : {wire::Operation::kRead, wire::Operation::kWrite}) {
    wire::TransferRequest request = Read(wire::Executor::kPeer);
    request.id = operation == wire::Operation::kRead ? "r" : "w";
    request.operation = operation;
    request.local = {{"", "", "v", 0}, {"", "", "u", 0}};
    request.remote.push_back({"peer", "owner", "v", 0});
    request.ranges = {{0, 0, 0, 0, 8192}, {1, 0, 1, 0, 8192}};
    executor_.on_execute = Succeed;
    const auto status = Submit(request);
    ASSERT_TRUE(status) << status.error().message;
    EXPECT_EQ(status->state, TransferState::kSucceeded);
    EXPECT_EQ(executor_.asked.ranges, request.ranges);
  }
}

TEST_F(DelegationTest, ABufferThatIsBeingMovedIsInUse) {
  ASSERT_TRUE(Submit(Read(), 0));
  const auto buffer = registry_.ByName("w", "k");
  ASSERT_TRUE(buffer);
  EXPECT_EQ((*buffer)->uses(), 1u);
  Succeed(*executor_.watcher);
  ASSERT_TRUE(engine_->Get("w", "t", In(milliseconds(3'000))));
  EXPECT_EQ((*buffer)->uses(), 0u);
}

// A way of this sidecar: by ipc none, by tcp one that moves everything at once.
class OwnPath final : public testing::WillingTransport {
 public:
  explicit OwnPath(wire::Path path)
      : WillingTransport({.path = path, .addresses_buffers = path == wire::Path::kTcp}) {}
  Status CanReach(const memory::MappedAllocation&,
                  const transport::RemoteAllocation&) const override {
    if (traits().addresses_buffers) return {};
    return Fail(ErrorCode::kPathUnavailable, "the peer's GPU is not seen");
  }
  std::unique_ptr<transport::Operation> Start(std::shared_ptr<const transport::MovePlan> plan, int,
                                              uint64_t token) override {
    token_ = token;
    return std::make_unique<engine::UnmovedOperation>(*plan, Clock::now());  // as if it had
  }
  transport::PollOutcome Poll(std::vector<uint64_t>* ready_tokens) override {
    if (token_ != 0) ready_tokens->push_back(token_);
    return {.poll_interval = milliseconds(1)};
  }

 private:
  uint64_t token_ = 0;
};

// The peer sees the GPUs of both sides; this sidecar has tcp.
class NearerPeerTest : public DelegationTest {
 protected:
  void SetUp() override {
    DelegationTest::SetUp();
    std::vector<std::unique_ptr<transport::Transport>> transports;
    transports.push_back(std::make_unique<OwnPath>(wire::Path::kIpc));
    transports.push_back(std::make_unique<OwnPath>(wire::Path::kTcp));
    engine_ = std::make_unique<engine::TransferEngine>(engine_options_, pool_, copies_.hints(),
                                                       std::move(transports), registry_, events_,
                                                       metrics_);
    engine_->SetPeerGateway(&gateway_);
    engine_->SetPeerExecutor(&executor_);
    gateway_.sees_gpus = true;
    executor_.on_execute = Succeed;
  }
  void ExpectItMovedFromHere(const wire::TransferRequest& request, std::string_view because) {
    const auto status = Submit(request);
    ASSERT_TRUE(status) << status.error().message;
    EXPECT_EQ(status->state, TransferState::kSucceeded);
    EXPECT_EQ(status->path, wire::Path::kTcp);
    EXPECT_FALSE(status->executed_by_peer);
    EXPECT_EQ(executor_.executions, 0);
    ASSERT_EQ(status->paths.at(0).path, wire::Path::kIpc);
    EXPECT_NE(status->paths[0].reason.find(because), std::string::npos) << status->paths[0].reason;
  }
};

TEST_F(NearerPeerTest, ItExecutes) {
  const auto status = Submit(Read());
  ASSERT_TRUE(status) << status.error().message;
  EXPECT_TRUE(status->executed_by_peer);
  EXPECT_EQ(executor_.executions, 1);
}

TEST_F(NearerPeerTest, WithoutAGrantForItTheTransferIsExecutedHere) {
  wire::TransferRequest request = Read();
  request.local.front().buffer = "private";
  ExpectItMovedFromHere(request, "does not grant remote_write");
}

TEST_F(NearerPeerTest, MoreRangesThanItIsToldAreExecutedHere) {
  wire::TransferRequest request = Read();
  request.ranges.clear();
  for (uint64_t i = 0; i <= engine::kDelegatedRangesMax; ++i) {
    request.ranges.push_back({0, 3 * i, 0, 3 * i, 1});
  }
  ExpectItMovedFromHere(request, "the peer would execute 262145 ranges");
  request.id = "by-peer";
  request.executor = wire::Executor::kPeer;
  const auto status = Submit(request);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kResourceExhausted);
}

}  // namespace
}  // namespace gantry::testing
