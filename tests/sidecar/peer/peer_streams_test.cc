// Data connections that the peer API lets in, versions of the protocol, and what a session may
// touch.
#include <gtest/gtest.h>

#include "sidecar/peer/client/stream_opener.h"
#include "sidecar/transport/tcp/tcp_transport.h"
#include "tests/sidecar/peer/raw_initiator.h"
#include "tests/sidecar/peer/test_sidecar.h"

namespace gantry::testing {
namespace {

using engine::PeerState;

class PeerStreamsTest : public ::testing::Test {
 protected:
  PeerStreamsTest() {
    owner_.UseTcp({});
    peer::PeerServerOptions& options = owner_.server_options();
    options.paths = [] {
      return std::vector<wire::PathReport>{{wire::Path::kShm, true, ""},
                                           {wire::Path::kTcp, true, ""}};
    };
    options.streams.listen = "127.0.0.1:0";
    options.streams.loops = loops_.get();
    options.streams.helpers = &helpers_;
    owner_.StartServer();
    initiator_.UseTransport(&transport_);
  }
  ~PeerStreamsTest() override {
    (void)initiator_.directory().Remove("prefill", In(2'000));
    owner_.StopServer();
  }

  // One read or write of bytes [0, size) of buffer `remote`, from start to end.
  std::optional<Error> Move(wire::Operation operation, const engine::RemoteBuffer& remote,
                            const TestArena& arena) {
    transport::MovePlan plan;
    plan.operation = operation;
    memory::AllocationSource source;
    source.fd = std::make_shared<UniqueFd>(arena.Fd());
    source.size = arena.size();
    source.writable = true;
    plan.local.push_back(*memory::MappedAllocation::Create(initiator_mapper_, source));
    plan.remote.push_back({nullptr, remote.target});
    transport::MoveSegment segment;
    segment.length = arena.size();
    plan.segments.push_back(segment);
    plan.bytes = arena.size();
    auto running =
        transport_.Start(std::make_shared<const transport::MovePlan>(std::move(plan)), 0, 1);
    std::vector<uint64_t> ready_tokens;
    EXPECT_TRUE(Eventually(10'000, [&] {
      transport_.Poll(&ready_tokens);
      return running->finished();
    }));
    return running->error();
  }

  NodeDir node_;
  CountingMapper owner_mapper_, initiator_mapper_;
  TestArena arena_{1 << 20}, local_{1 << 20};
  std::unique_ptr<transport::IoLoops> loops_ = *transport::IoLoops::Create(1);
  transport::HelperThreads helpers_{2};
  transport::TcpTransport transport_{{}, *loops_, helpers_, nullptr, [] {}};
  TestSidecar owner_{"", "prefill", owner_mapper_};
  TestSidecar initiator_{"", "decode", initiator_mapper_};
};

TEST_F(PeerStreamsTest, BytesMoveBothWays) {
  owner_.Register(arena_, "k");
  initiator_.ConnectToAddress(owner_.server().tcp_address(), "prefill");
  EXPECT_EQ(initiator_.directory().Get("prefill")->path, wire::Path::kTcp);
  const auto handles = initiator_.Acquire("prefill", {"k"});
  ASSERT_TRUE(handles) << handles.error().message;
  const engine::RemoteBuffer& remote = *handles->front();
  ASSERT_NE(remote.target, nullptr);
  EXPECT_EQ(remote.flat.length(), arena_.size());

  arena_.data()[12'345] = 42;
  auto error = Move(wire::Operation::kRead, remote, local_);
  ASSERT_FALSE(error) << error->message;
  EXPECT_EQ(local_.data()[12'345], 42);
  local_.data()[54'321] = 43;
  error = Move(wire::Operation::kWrite, remote, local_);
  ASSERT_FALSE(error) << error->message;
  EXPECT_EQ(arena_.data()[54'321], 43);
}

TEST_F(PeerStreamsTest, WhatIsNotGrantedOrNotThereAnyMoreIsRefused) {
  const auto buffer = owner_.Register(arena_, "k", {true, false});
  initiator_.ConnectToAddress(owner_.server().tcp_address(), "prefill");
  auto handles = initiator_.Acquire("prefill", {"k"});
  ASSERT_TRUE(handles) << handles.error().message;
  const engine::RemoteBuffer copy = *handles->front();  // of an initiator that does not let go
  auto error = Move(wire::Operation::kWrite, copy, local_);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code, ErrorCode::kPermissionDenied);
  handles->clear();
  ASSERT_TRUE(owner_.registry().Remove(buffer->description().id, In(5'000)));
  error = Move(wire::Operation::kRead, copy, local_);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code, ErrorCode::kStaleGeneration);
}

TEST_F(PeerStreamsTest, TicketsAreCountedAndEndWithTheSession) {
  RawInitiator raw(owner_.server().tcp_address(), "decode");
  ASSERT_TRUE(raw.Watch(owner_.generation()));
  const auto reply = raw.OpenStreams(3);
  ASSERT_TRUE(reply) << reply.error().message;
  EXPECT_EQ(reply->tickets_size(), 3);
  EXPECT_EQ(reply->addresses(0), ":" + std::to_string(owner_.server().streams_port()));
  EXPECT_FALSE(reply->tls());
  EXPECT_EQ(raw.OpenStreams(0).error().code, ErrorCode::kMalformedBody);
  EXPECT_EQ(raw.OpenStreams(1'000'000).error().code, ErrorCode::kMalformedBody);
  EXPECT_EQ(raw.OpenStreams(64).error().code, ErrorCode::kResourceExhausted);
  raw.EndWatch();
  EXPECT_TRUE(Eventually(2'000, [&] {
    const auto again = raw.OpenStreams(1);
    return !again && again.error().code == ErrorCode::kStaleGeneration;
  }));
}

TEST_F(PeerStreamsTest, NeighbouringVersionsUnderstandEachOther) {
  for (const wire::PeerVersions theirs : {wire::PeerVersions{1, 1}, {1, 2}, {2, 2}, {2, 3}}) {
    RawInitiator raw(owner_.server().tcp_address(), "decode");
    const auto reply = raw.Hello(theirs.min, theirs.max);
    ASSERT_TRUE(reply) << theirs.min << " to " << theirs.max;
    EXPECT_EQ(reply->version(), std::min(theirs.max, wire::kPeerVersions.max));
  }
  RawInitiator newer(owner_.server().tcp_address(), "decode");
  const auto refused = newer.Hello(3, 4);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kVersionMismatch);
  EXPECT_NE(refused.error().message.find("1 to 2"), std::string::npos) << refused.error().message;
  EXPECT_NE(refused.error().hint.find("upgrade"), std::string::npos);
}

TEST_F(PeerStreamsTest, AnOwnerOfThePreviousVersionIsMetWithoutDataConnections) {
  owner_.StopServer();
  owner_.server_options().versions = {1, 1};
  owner_.StartServer();
  owner_.Register(arena_, "k");
  initiator_.ConnectToAddress(owner_.server().tcp_address(), "prefill");
  const auto info = initiator_.directory().Get("prefill");
  EXPECT_FALSE(info->path);
  EXPECT_NE(info->paths[static_cast<size_t>(wire::Path::kTcp)].reason.find("version 1"),
            std::string::npos);
  const auto handles = initiator_.Acquire("prefill", {"k"});
  ASSERT_TRUE(handles) << handles.error().message;
  EXPECT_EQ(handles->front()->target, nullptr);
}

TEST_F(PeerStreamsTest, AnOwnerOfALaterVersionIsExplained) {
  owner_.StopServer();
  owner_.server_options().versions = {3, 4};
  owner_.StartServer();
  const auto info = initiator_.Try(owner_.server().tcp_address(), "prefill");
  ASSERT_TRUE(info.error);
  EXPECT_EQ(info.error->code, ErrorCode::kVersionMismatch);
}

}  // namespace
}  // namespace gantry::testing
