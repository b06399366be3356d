// Executions between two sidecars, each with an engine: who may ask for them, and how they end when
// one side does not hear the other.
#include <gtest/gtest.h>

#include <future>

#include "lib/wire/peer_execution_messages.h"
#include "sidecar/copy/shm_transport.h"
#include "sidecar/peer/execution/execution_client.h"
#include "sidecar/peer/execution/execution_server.h"
#include "sidecar/peer/identity/session_proof.h"
#include "sidecar/transfer/transfer_engine.h"
#include "tests/fakes/fake_copy_pool.h"
#include "tests/sidecar/peer/raw_initiator.h"
#include "tests/sidecar/peer/test_sidecar.h"
#include "tests/sidecar/peer/timed_watcher.h"

namespace gantry::testing {
namespace {

constexpr uint64_t kBytes = 1 << 20;
constexpr milliseconds kQuiesceMax{1'234};

// A sidecar that moves bytes, takes executions and asks for them.
struct Whole {
  Whole(const NodeDir& node, const std::string& name, uint8_t seed, size_t peer_fds_max = 16)
      : arena(kBytes, seed), sidecar(node, name, pool) {
    sidecar.SetFdsMax(peer_fds_max);
    sidecar.server_options().quiesce_max = kQuiesceMax;
    std::vector<std::unique_ptr<transport::Transport>> transports;
    transports.push_back(std::make_unique<transport::ShmTransport>(copies));
    engine::EngineOptions options;
    options.chunk_bytes_max = 4096;
    engine = std::make_unique<engine::TransferEngine>(
        options, pool, copies.hints(), std::move(transports), sidecar.registry(), events, metrics);
    engine->SetPeerGateway(&sidecar.directory());
    sidecar.StopTransfersWith([this](const auto& revoked, Error why) {
      engine->StopTransfersUsing(revoked, std::move(why));
    });
    server = std::make_unique<peer::ExecutionServer>(*engine, sidecar.registry());
    server->SetPeers(&sidecar.directory());
    sidecar.server_options().executions = server.get();
    sidecar.StartServer();
    client = std::make_unique<peer::ExecutionClient>(sidecar.directory(), sidecar.server());
    engine->SetPeerExecutor(client.get());
    buffer = sidecar.Register(arena, "kv");
  }
  ~Whole() {
    engine->Close();
    client->Close();
    server->Close();
    engine.reset();
  }

  worker::FakeCopyPool pool{2, 1};
  transport::CopyScheduler copies{{}, pool, pool};
  TestArena arena;
  engine::EventLog events{1024};
  metrics::Metrics metrics{"test"};
  std::unique_ptr<peer::ExecutionServer> server;  // outlives the peer server
  std::unique_ptr<peer::ExecutionClient> client;
  TestSidecar sidecar;
  std::unique_ptr<engine::TransferEngine> engine;
  std::shared_ptr<registry::Buffer> buffer;
};

class ExecutionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    a_.sidecar.ConnectTo(node_, "b");
    b_.sidecar.ConnectTo(node_, "a");
  }
  // Of a's caller: b's bytes to a. It names the generation: what fails is not tried again.
  Result<engine::TransferStatus> Read(int wait_ms) {
    wire::TransferRequest request;
    request.id = "t";
    request.workload = "engine";
    request.local.push_back({"", "", "kv", 0});
    request.remote.push_back({"b", "engine", "kv", b_.buffer->description().generation});
    request.ranges.push_back({0, 0, 0, 0, kBytes});
    request.executor = wire::Executor::kPeer;
    return a_.engine->Submit(request, In(wait_ms));
  }
  // As a would ask b.
  wire::PeerExecution Execution(const std::string& id, std::vector<std::string> proofs) {
    wire::PeerExecution what;
    what.id = id;
    what.proofs = std::move(proofs);
    what.callers.push_back({"", "engine", "kv", a_.buffer->description().generation});
    what.callees.push_back({"", "engine", "kv", b_.buffer->description().generation});
    what.ranges.push_back({0, 0, 0, 0, 4096});
    what.deadline_ms = 5'000;
    return what;
  }
  std::vector<std::string> RightProofs() {
    return a_.sidecar.server().ProofsFor(b_.sidecar.generation(), "node");
  }
  static wire::PeerExecutionEnd ExecuteAt(RawInitiator& raw, const wire::PeerExecution& what) {
    v1::ExecuteRequest request;
    wire::ToMessage(what, &request);
    request.set_session(raw.session());
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
    const auto stream = raw.stub().Execute(&context, request);
    v1::ExecuteEvent event, last;
    while (stream->Read(&event)) last = event;
    const grpc::Status status = stream->Finish();
    if (!status.ok()) return {peer::FromGrpcStatus(status), 0};
    EXPECT_TRUE(last.has_ended());
    return wire::FromMessage(last.ended());
  }
  static ErrorCode CodeOf(const wire::PeerExecutionEnd& end) {
    EXPECT_TRUE(end.error);
    return end.error ? end.error->code : ErrorCode::kInternal;
  }

  NodeDir node_;
  Whole a_{node_, "a", 1}, b_{node_, "b", 2};
};

TEST_F(ExecutionTest, BytesMoveAndBothSidesSayWho) {
  const auto status = Read(5'000);
  ASSERT_TRUE(status) << status.error().message;
  ASSERT_EQ(status->state, engine::TransferState::kSucceeded)
      << status->error.value_or(Error()).message;
  EXPECT_TRUE(status->executed_by_peer);
  EXPECT_EQ(a_.arena.bytes()[kBytes - 1], b_.arena.bytes()[kBytes - 1]);
  const auto there = b_.engine->List("engine", false, 10);
  ASSERT_EQ(there.size(), 1u);
  EXPECT_EQ(there[0].requested_by, "a");
  EXPECT_FALSE(there[0].executed_by_peer);
}

// The peer's memory needs not be mapped here, nor can it be.
TEST_F(ExecutionTest, ThePeerMovesWhatCannotBeMappedHere) {
  Whole c(node_, "c", 3, /*peer_fds_max=*/0);
  c.sidecar.ConnectTo(node_, "b");
  b_.sidecar.ConnectTo(node_, "c");
  wire::TransferRequest request;
  request.workload = "engine";
  request.local.push_back({"", "", "kv", 0});
  request.remote.push_back({"b", "engine", "kv", 0});
  request.ranges.push_back({0, 0, 0, 0, kBytes});
  request.executor = wire::Executor::kSelf;
  EXPECT_EQ(c.engine->Submit(request, In(5'000)).error().code, ErrorCode::kResourceExhausted);
  request.executor = wire::Executor::kPeer;
  const auto status = c.engine->Submit(request, In(5'000));
  ASSERT_TRUE(status) << status.error().message;
  EXPECT_EQ(status->state, engine::TransferState::kSucceeded);
  EXPECT_EQ(c.arena.bytes()[kBytes - 1], b_.arena.bytes()[kBytes - 1]);
  EXPECT_EQ(c.sidecar.directory().mapped_allocations(), 0u);
  request.executor = wire::Executor::kSelf;
  EXPECT_EQ(c.engine->Submit(request, In(5'000)).error().code, ErrorCode::kResourceExhausted)
      << "what was only named is not taken for mapped";
}

TEST_F(ExecutionTest, WhatWasNamedIsMappedWhenItIsMovedFromHere) {
  ASSERT_TRUE(Read(5'000));
  EXPECT_EQ(a_.sidecar.directory().mapped_allocations(), 0u);
  ASSERT_TRUE(a_.sidecar.Acquire("b", {"kv"}));
  EXPECT_EQ(a_.sidecar.directory().mapped_allocations(), 1u);
  ASSERT_TRUE(a_.sidecar.Acquire("b", {"kv"}, 0, 5'000, engine::RemoteUse::kName));
  EXPECT_EQ(a_.sidecar.directory().mapped_allocations(), 1u);
}

TEST_F(ExecutionTest, APeerSaysHowLongItNeedsToBeQuiet) {
  const auto client = a_.sidecar.directory().ClientOf("b", In(5'000));
  ASSERT_TRUE(client);
  EXPECT_EQ((*client)->facts().quiesce_max, kQuiesceMax);
}

TEST_F(ExecutionTest, OfThoseThatWaitTheMoreUrgentGoFirst) {
  struct Order {
    Mutex mutex;
    std::vector<int> begun GUARDED_BY(mutex);
    size_t ended GUARDED_BY(mutex) = 0;
  } order;
  struct Watch final : engine::PeerExecutor::Watcher {
    Watch(Order& order_in, int priority_in) : order(order_in), priority(priority_in) {}
    void OnAccepted(wire::Path, std::vector<wire::PathReport>) override {
      const MutexLock lock(order.mutex);
      order.begun.push_back(priority);
    }
    void OnProgress(uint64_t) override {}
    void OnEnded(const wire::PeerExecutionEnd&) override {
      const MutexLock lock(order.mutex);
      ++order.ended;
    }
    Order& order;
    const int priority;
  };
  peer::ExecutionClientOptions options;
  options.running_max = 1;
  peer::ExecutionClient client(a_.sidecar.directory(), a_.sidecar.server(), options);
  const auto begun = [&] {
    const MutexLock lock(order.mutex);
    return order.begun;
  };
  b_.pool.Hold();
  std::vector<std::unique_ptr<engine::PeerExecutor::Execution>> executions;
  for (const int priority : {-5, -1, 5, 0}) {
    executions.push_back(client.Execute(
        "b", priority, [this] { return Execution("", {}); }, In(10'000),
        std::make_shared<Watch>(order, priority)));
    ASSERT_TRUE(Eventually(5'000, [&] { return begun() == std::vector<int>{-5}; }));
  }
  b_.pool.Release();
  EXPECT_TRUE(Eventually(5'000, [&] {
    const MutexLock lock(order.mutex);
    return order.ended == 4;
  }));
  EXPECT_EQ(begun(), (std::vector<int>{-5, 5, 0, -1}));
  client.Close();
}

// Whoever is let in by b could else use what b may do at a.
TEST_F(ExecutionTest, WhoDoesNotKnowTheSessionIsNotTheOneWhoseMemoryItIs) {
  RawInitiator raw(node_, "b", "a");
  raw.OpenSession(b_.sidecar.generation());
  EXPECT_EQ(CodeOf(ExecuteAt(raw, Execution("none", {}))), ErrorCode::kPeerUnavailable);
  EXPECT_EQ(CodeOf(ExecuteAt(raw, Execution("own", {peer::SessionProof(raw.session())}))),
            ErrorCode::kPeerUnavailable);
  EXPECT_TRUE(b_.engine->List("engine", false, 10).empty());
  const auto proofs = RightProofs();
  ASSERT_EQ(proofs.size(), 1u);
  EXPECT_TRUE(
      a_.sidecar.server().ProofsFor(b_.sidecar.generation(), "certificate\nspiffe://h").empty())
      << "what is for b is not given to another who says to be b";
  EXPECT_FALSE(ExecuteAt(raw, Execution("right", proofs)).error);
}

TEST_F(ExecutionTest, TheCallersRightsAreLookedAt) {
  RawInitiator raw(node_, "b", "a");
  raw.OpenSession(b_.sidecar.generation());
  TestArena arena{kBytes, 3};
  const auto hidden = b_.sidecar.Register(arena, "hidden", {false, true});
  auto what = Execution("hidden", RightProofs());
  what.callees[0] = {"", "engine", "hidden", hidden->description().generation};
  EXPECT_EQ(CodeOf(ExecuteAt(raw, what)), ErrorCode::kPermissionDenied)
      << "it grants no remote_read";
  what.id = "write";
  what.operation = wire::Operation::kWrite;
  EXPECT_FALSE(ExecuteAt(raw, what).error) << "it grants remote_write";
  what = Execution("stale", RightProofs());
  what.callees[0].generation += 1;
  EXPECT_EQ(CodeOf(ExecuteAt(raw, what)), ErrorCode::kStaleGeneration);
  what = Execution("outside", RightProofs());
  what.ranges[0].length = kBytes + 1;
  EXPECT_EQ(CodeOf(ExecuteAt(raw, what)), ErrorCode::kOutOfRange);
  what = Execution("gone", RightProofs());
  what.callees[0].buffer = "gone";
  EXPECT_EQ(CodeOf(ExecuteAt(raw, what)), ErrorCode::kUnregistered);
}

TEST_F(ExecutionTest, OneThatWasEndedBeforeItCameDoesNotBegin) {
  const auto end = b_.server->End("session", "late");
  ASSERT_TRUE(end);
  EXPECT_EQ(CodeOf(*end), ErrorCode::kCancelled);
  auto what = Execution("late", RightProofs());
  peer::ExecutionServer::Caller caller{"session",         "a", {}, [] { return false; }, [] {},
                                       [](const auto&) {}};
  EXPECT_EQ(CodeOf(b_.server->Execute(caller, what)), ErrorCode::kCancelled);
  what.id = "another";
  EXPECT_FALSE(b_.server->Execute(caller, what).error);
  EXPECT_FALSE(b_.server->End("session", "another")->error) << "what became of it is remembered";
}

// Its admission may wait for descriptions from the very peer that asks for its end.
TEST_F(ExecutionTest, OneThatIsBeingAdmittedEndsAtOnceAndDoesNotBegin) {
  std::promise<void> admitting, go_on;
  peer::ExecutionServer::Caller caller{"session",
                                       "a",
                                       {},
                                       [&] {
                                         admitting.set_value();
                                         go_on.get_future().wait();
                                         return false;
                                       },
                                       [] {},
                                       [](const auto&) {}};
  auto running = std::async(std::launch::async, [&] {
    return b_.server->Execute(caller, Execution("slow", RightProofs()));
  });
  admitting.get_future().wait();
  const TimePoint asked = Clock::now();
  const auto end = b_.server->End("session", "slow");
  EXPECT_LT(Clock::now() - asked, milliseconds(2'000));
  go_on.set_value();
  ASSERT_TRUE(end);
  EXPECT_FALSE(end->pending);
  EXPECT_EQ(CodeOf(*end), ErrorCode::kCancelled);
  EXPECT_EQ(CodeOf(running.get()), ErrorCode::kCancelled);
  EXPECT_TRUE(b_.engine->List("engine", false, 10).empty());
}

TEST_F(ExecutionTest, ItIsStoppedWhenNobodyListensOrItsSessionEnds) {
  b_.pool.Hold();
  bool gone = false;
  for (const bool by_session : {false, true}) {
    gone = false;
    peer::ExecutionServer::Caller caller{"session",
                                         "a",
                                         {},
                                         [&] { return gone; },
                                         [] {},
                                         [&](const auto&) {
                                           if (by_session) b_.server->EndSession("session");
                                           gone = !by_session;
                                         }};
    auto what = Execution(by_session ? "session" : "gone", RightProofs());
    what.ranges[0].length = kBytes;
    auto running = std::async(std::launch::async, [&] { return b_.server->Execute(caller, what); });
    EXPECT_EQ(running.wait_for(milliseconds(50)), std::future_status::timeout);
    b_.pool.Release();
    EXPECT_EQ(CodeOf(running.get()), ErrorCode::kCancelled);
    b_.pool.Hold();
  }
  b_.pool.Release();
}

// The peer cannot be asked any more: only what it can touch no longer is quiet.
TEST_F(ExecutionTest, APeerThatDoesNotAnswerLosesItsSession) {
  const TimePoint end = In(15'000);
  b_.pool.Hold();
  auto status = Read(0);
  ASSERT_TRUE(status) << status.error().message;
  ASSERT_TRUE(Eventually(5'000, [&] { return b_.engine->List("engine", true, 10).size() == 1; }));
  EXPECT_EQ(a_.sidecar.server().Totals().sessions, 1u);
  auto stopped = std::async(std::launch::async, [&] { b_.sidecar.StopServer(); });
  // Its copies are held: it has a's memory mapped, and nothing may be said of the transfer.
  while (status && !engine::IsTerminal(status->state) && Clock::now() < end) {
    status = a_.engine->Get("engine", "t", In(10));
  }
  EXPECT_TRUE(b_.engine->List("engine", true, 10).empty()) << "it may still move bytes";
  ASSERT_TRUE(status);
  EXPECT_EQ(status->state, engine::TransferState::kFailed);
  b_.pool.Release();
  stopped.get();
}

// What it has read it may still store in its own memory, for as long as it says that it may need.
TEST_F(ExecutionTest, AWriteIsOverWhenThePeerMustBeQuiet) {
  peer::ExecutionClientOptions options;
  options.silence_max = milliseconds(0);
  options.quiesce_max = milliseconds(0);  // the peer's own word counts
  peer::ExecutionClient client(a_.sidecar.directory(), a_.sidecar.server(), options);
  const auto watch = std::make_shared<peer::TimedWatcher>();
  b_.pool.Hold();
  const auto execution = client.Execute(
      "b", 0,
      [this] {
        auto what = Execution("", {});
        what.operation = wire::Operation::kWrite;
        return what;
      },
      In(20'000), watch);
  watch->begun.get_future().wait();
  const std::vector<std::string> sessions = RightProofs();
  const TimePoint stop = Clock::now();
  auto stopped = std::async(std::launch::async, [&] { b_.sidecar.StopServer(); });
  auto ended = watch->ended.get_future();
  // The caller has seen that the peer answers no more. The peer may open another session at once.
  EXPECT_TRUE(Eventually(15'000, [&] { return RightProofs() != sessions; }));
  b_.pool.Release();
  ASSERT_EQ(ended.wait_for(milliseconds(20'000)), std::future_status::ready);
  EXPECT_GE(ended.get() - stop, kQuiesceMax);
  stopped.get();
  client.Close();
}

}  // namespace
}  // namespace gantry::testing
