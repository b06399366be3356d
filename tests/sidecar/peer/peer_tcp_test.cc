// Peers over TCP on loopback: what works without the node directory, and what must not.
#include <gtest/gtest.h>

#include "tests/sidecar/peer/raw_initiator.h"
#include "tests/sidecar/peer/test_sidecar.h"

namespace gantry::testing {
namespace {

using engine::PeerState;

class PeerTcpTest : public ::testing::Test {
 protected:
  PeerTcpTest() {
    owner_.UseTcp({});
    owner_.StartServer();
  }
  ~PeerTcpTest() override { owner_.StopServer(); }

  std::string address() { return owner_.server().tcp_address(); }
  void Connect() { initiator_.ConnectToAddress(address(), "prefill"); }

  NodeDir node_;
  CountingMapper owner_mapper_, initiator_mapper_;
  TestArena arena_{1 << 20};
  TestSidecar owner_{"", "prefill", owner_mapper_};
  TestSidecar initiator_{"", "decode", initiator_mapper_};
};

TEST_F(PeerTcpTest, APeerComesUpAndSaysWhyItsMemoryIsNotMapped) {
  Connect();
  const auto info = initiator_.directory().Get("prefill");
  ASSERT_TRUE(info);
  EXPECT_EQ(info->address, address());
  EXPECT_EQ(info->generation, owner_.generation());
  EXPECT_EQ(info->node_id, *peer::ReadNodeId());
  EXPECT_GT(info->rtt_us, 0U);
  ASSERT_EQ(info->paths.size(), static_cast<size_t>(wire::kPathCount));
  for (const wire::PathReport& report : info->paths) EXPECT_FALSE(report.available);
  EXPECT_EQ(info->paths[static_cast<size_t>(wire::Path::kShm)].reason, wire::kReachedOverTcp);
}

TEST_F(PeerTcpTest, BuffersAreDescribedAndNothingIsMapped) {
  const auto buffer = owner_.Register(arena_, "k");
  Connect();
  const auto handles = initiator_.Acquire("prefill", {"k"});
  ASSERT_TRUE(handles) << handles.error().message;
  const engine::RemoteBuffer& remote = *handles->front();
  EXPECT_EQ(remote.reference.generation, buffer->description().generation);
  EXPECT_EQ(remote.length, arena_.size());
  ASSERT_EQ(remote.allocations.size(), 1U);
  EXPECT_EQ(remote.allocations.front().mapped, nullptr);
  EXPECT_EQ(remote.paths[static_cast<size_t>(wire::Path::kShm)].reason, wire::kReachedOverTcp);
  EXPECT_EQ(initiator_.directory().mapped_allocations(), 0U);
  EXPECT_EQ(initiator_.directory().fds_held(), 0U);
}

TEST_F(PeerTcpTest, DescriptorsAreNotHandedOut) {
  owner_.Register(arena_, "k");
  RawInitiator raw(address(), "decode");
  ASSERT_TRUE(raw.Watch(owner_.generation()));
  EXPECT_TRUE(raw.started().lease_ticket().empty());
  EXPECT_TRUE(raw.started().fd_socket().empty());
  const auto buffer = raw.Describe("k");
  ASSERT_TRUE(buffer) << buffer.error().message;
  const auto tickets = raw.Connect(*buffer, false, buffer->allocations(0).id());
  ASSERT_FALSE(tickets);
  EXPECT_EQ(tickets.error().code, ErrorCode::kPathUnavailable);
}

TEST_F(PeerTcpTest, ASessionBelongsToItsServer) {
  TestSidecar both(node_, "both", owner_mapper_);
  both.UseTcp({});
  both.StartServer();
  both.Register(arena_, "k");
  RawInitiator over_tcp(both.server().tcp_address(), "decode");
  ASSERT_TRUE(over_tcp.Watch(both.generation()));
  RawInitiator in_node(node_, "both", "decode");
  in_node.OpenSession(both.generation());
  ASSERT_TRUE(in_node.Describe("k"));
  in_node.TakeSessionOf(over_tcp);
  EXPECT_EQ(in_node.Describe("k").error().code, ErrorCode::kStaleGeneration);
  both.StopServer();
}

TEST_F(PeerTcpTest, ARemovalWaitsForTheAcknowledgement) {
  const auto buffer = owner_.Register(arena_, "k");
  Connect();
  auto handles = initiator_.Acquire("prefill", {"k"});
  ASSERT_TRUE(handles);
  std::thread use([&] {
    std::this_thread::sleep_for(milliseconds(200));
    handles->clear();
  });
  const TimePoint begin = Clock::now();
  EXPECT_TRUE(owner_.registry().Remove(buffer->description().id, In(5'000)));
  EXPECT_GE(Clock::now() - begin, milliseconds(150));
  use.join();
  EXPECT_EQ(initiator_.Acquire("prefill", {"k"}).error().code, ErrorCode::kUnregistered);
}

TEST_F(PeerTcpTest, APeerThatLeavesHoldsNothingUp) {
  const auto buffer = owner_.Register(arena_, "k");
  {
    RawInitiator raw(address(), "decode");
    ASSERT_TRUE(raw.Watch(owner_.generation()));
    ASSERT_TRUE(raw.Describe("k"));
  }
  const TimePoint begin = Clock::now();
  EXPECT_TRUE(owner_.registry().Remove(buffer->description().id, In(5'000)));
  EXPECT_LT(Clock::now() - begin, milliseconds(2'000));
}

TEST_F(PeerTcpTest, APeerThatDoesNotLetGoIsRefusedTheBufferInTimeAndKeepsItsSession) {
  const auto buffer = owner_.Register(arena_, "k");
  owner_.Register(arena_, "other");
  RawInitiator silent(address(), "decode");
  ASSERT_TRUE(silent.Watch(owner_.generation()));
  ASSERT_TRUE(silent.Describe("k"));
  const TimePoint begin = Clock::now();
  const Status removed = owner_.registry().Remove(buffer->description().id, In(2'000));
  EXPECT_TRUE(removed) << removed.error().message;
  EXPECT_GE(Clock::now() - begin, milliseconds(1'000));
  const auto told = silent.Next();
  ASSERT_TRUE(told);
  EXPECT_TRUE(told->has_revoked());
  EXPECT_EQ(silent.Describe("k").error().code, ErrorCode::kUnregistered);
  EXPECT_TRUE(silent.Describe("other"));
}

TEST_F(PeerTcpTest, ARemovalWithoutTimeCostsAnIdlePeerNothing) {
  const auto buffer = owner_.Register(arena_, "k");
  Connect();
  ASSERT_TRUE(initiator_.Acquire("prefill", {"k"}));
  (void)owner_.registry().Remove(buffer->description().id, Clock::now());
  EXPECT_TRUE(Eventually(2'000, [&] {
    (void)owner_.registry().FinishRemovals(In(10));
    return !owner_.registry().ById(buffer->description().id);
  }));
  std::this_thread::sleep_for(milliseconds(400));
  EXPECT_FALSE(initiator_.HasEvent(engine::EventType::kPeerDown, "prefill"));
  EXPECT_FALSE(owner_.HasEvent(engine::EventType::kBufferRevoked, "k"));
}

TEST_F(PeerTcpTest, AfterARemovalWithoutTimeASilentPeerIsCutOffAndTheOwnerToldOfIt) {
  const auto buffer = owner_.Register(arena_, "k");
  RawInitiator silent(address(), "decode");
  ASSERT_TRUE(silent.Watch(owner_.generation()));
  ASSERT_TRUE(silent.Describe("k"));
  const TimePoint begin = Clock::now();
  EXPECT_FALSE(owner_.registry().Remove(buffer->description().id, begin));
  // Nobody waits for it any more, and nobody asks again.
  const auto told = [&] { return owner_.HasEvent(engine::EventType::kBufferRevoked, "k"); };
  EXPECT_TRUE(Eventually(10'000, told));
  EXPECT_GE(Clock::now() - begin, milliseconds(1'250));
  EXPECT_TRUE(Eventually(2'000, [&] {
    (void)owner_.registry().FinishRemovals(In(10));
    return !owner_.registry().ById(buffer->description().id);
  }));
}

TEST_F(PeerTcpTest, ThereAreNoTicketsWithoutDataConnections) {
  RawInitiator raw(address(), "decode");
  ASSERT_TRUE(raw.Watch(owner_.generation()));
  EXPECT_EQ(raw.OpenStreams(1).error().code, ErrorCode::kPathUnavailable);
}

TEST_F(PeerTcpTest, TheOwnersEndIsNoticed) {
  Connect();
  owner_.StopServer();
  EXPECT_TRUE(Eventually(3'000, [&] { return initiator_.StateOf("prefill") != PeerState::kUp; }));
}

TEST_F(PeerTcpTest, RemovingAPeerForgetsItAtOnce) {
  owner_.Register(arena_, "k");
  Connect();
  ASSERT_TRUE(initiator_.Acquire("prefill", {"k"}));
  const TimePoint begin = Clock::now();
  EXPECT_TRUE(initiator_.directory().Remove("prefill", In(5'000)));
  EXPECT_LT(Clock::now() - begin, milliseconds(1'000));
  EXPECT_FALSE(initiator_.directory().Get("prefill"));
  EXPECT_TRUE(Eventually(2'000, [&] { return owner_.server().Totals().sessions == 0; }));
}

TEST_F(PeerTcpTest, NobodyListensBeyondLoopbackUnprotected) {
  TestSidecar careless("", "careless", owner_mapper_);
  careless.server_options().listen = "0.0.0.0:0";
  const auto started = peer::PeerServer::Start(careless.server_options(), careless.registry());
  ASSERT_FALSE(started);
  EXPECT_EQ(started.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(started.error().hint.find("--peer-tls-cert"), std::string::npos);
}

}  // namespace
}  // namespace gantry::testing
