// An initiator that speaks the peer API by hand, for what PeerClient would never send. Used by one
// thread at a time.
#pragma once

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lib/base/fd_passing.h"
#include "lib/base/random_id.h"
#include "lib/wire/fd_ticket_protocol.h"
#include "lib/wire/peer.grpc.pb.h"
#include "lib/wire/peer_messages.h"
#include "sidecar/peer/client/call_context.h"
#include "sidecar/peer/identity/grpc_status.h"
#include "tests/sidecar/peer/test_sidecar.h"

namespace gantry::testing {

namespace v1 = gantry::peer::v1;

class RawInitiator {
 public:
  RawInitiator(const NodeDir& node, const std::string& owner, std::string name)
      : fd_path_(node.path() + "/" + owner + ".fds.sock"),
        self_{std::move(name), RandomGeneration(), *peer::ReadNodeId(), "raw"} {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    stub_ = v1::Peer::NewStub(grpc::CreateCustomChannel(
        node.AddressOf(owner), grpc::InsecureChannelCredentials(), arguments));
  }
  // Over TCP, with nothing to show.
  RawInitiator(
      const std::string& address, std::string name,
      std::shared_ptr<grpc::ChannelCredentials> credentials = grpc::InsecureChannelCredentials())
      : self_{std::move(name), RandomGeneration(), *peer::ReadNodeId(), "raw"} {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    stub_ =
        v1::Peer::NewStub(grpc::CreateCustomChannel(address, std::move(credentials), arguments));
  }
  ~RawInitiator() { EndWatch(); }

  v1::Peer::Stub& stub() { return *stub_; }
  const std::string& session() const { return started_.session(); }
  const v1::Started& started() const { return started_; }
  int lease() const { return lease_.get(); }
  void TakeSessionOf(const RawInitiator& other) { started_.set_session(other.session()); }
  void CloseLease() { lease_.reset(); }
  void EndWatch() {
    if (watch_ == nullptr) return;
    watch_context_.TryCancel();
    v1::WatchEvent event;
    while (watch_->Read(&event)) {
    }
    watch_->Finish();
    watch_.reset();
  }

  template <typename Reply, typename Request>
  Result<Reply> Call(peer::PeerMethod<Request, Reply> method, const Request& request) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
    Reply reply;
    const grpc::Status status = (stub_.get()->*method)(&context, request, &reply);
    if (!status.ok()) return Fail(peer::FromGrpcStatus(status));
    return reply;
  }
  Result<v1::HelloReply> Hello(uint32_t version_min = 1, uint32_t version_max = 1) {
    v1::HelloRequest request;
    request.set_version_min(version_min);
    request.set_version_max(version_max);
    wire::ToMessage(self_, request.mutable_initiator());
    return Call<v1::HelloReply>(&v1::Peer::Stub::Hello, request);
  }
  // What the owner showed when Hello worked; empty: it did not.
  std::string CertificateOfOwner() {
    v1::HelloRequest request;
    request.set_version_min(1);
    request.set_version_max(1);
    wire::ToMessage(self_, request.mutable_initiator());
    v1::HelloReply reply;
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(5));
    if (!stub_->Hello(&context, request, &reply).ok()) return {};
    const auto shown = context.auth_context()->FindPropertyValues("x509_pem_cert");
    return shown.empty() ? std::string() : std::string(shown[0].data(), shown[0].size());
  }
  // Watches; false when refused.
  bool Watch(uint64_t owner_generation) {
    v1::WatchRequest request;
    wire::ToMessage(self_, request.mutable_initiator());
    request.set_version(1);
    request.set_owner_generation(owner_generation);
    watch_ = stub_->Watch(&watch_context_, request);
    const auto event = Next();
    if (!event || !event->has_started()) return false;
    started_ = event->started();
    return true;
  }
  // The next event that is no heartbeat; nothing: the stream ended.
  std::optional<v1::WatchEvent> Next() {
    v1::WatchEvent event;
    while (watch_->Read(&event)) {
      if (!event.has_heartbeat()) return event;
    }
    return {};
  }
  UniqueFd ConnectFds() const { return *ConnectUnix(fd_path_, SOCK_SEQPACKET); }
  Result<FdMessage> Exchange(int socket, const std::string& text) const {
    RETURN_IF_ERROR(SendMessage(socket, text, {}));
    ASSIGN_OR_RETURN(FdMessage reply, ReceiveMessage(socket, wire::kFdTicketReplyBytesMax));
    if (reply.closed) return Fail(ErrorCode::kPeerLost, "closed");
    auto count = wire::DecodeFdTicketReply(reply.payload);
    if (!count) return Fail(count.error());
    return reply;
  }
  void OpenLease() {
    lease_ = ConnectFds();
    const auto reply = Exchange(lease_.get(), "lease " + started_.lease_ticket());
    ASSERT_TRUE(reply) << reply.error().message;
  }
  void OpenSession(uint64_t owner_generation) {
    ASSERT_TRUE(Watch(owner_generation));
    OpenLease();
  }

  Result<v1::BufferDescriptor> Describe(const std::string& buffer, uint64_t generation = 0) {
    v1::DescribeRequest request;
    request.set_session(session());
    v1::Reference& reference = *request.add_references();
    reference.set_workload("engine");
    reference.set_buffer(buffer);
    reference.set_generation(generation);
    ASSIGN_OR_RETURN(const auto reply, Call<v1::DescribeReply>(&v1::Peer::Stub::Describe, request));
    const v1::Description& description = reply.descriptions(0);
    if (description.has_problem()) return Fail(wire::FromMessage(description.problem()));
    return description.buffer();
  }
  Result<v1::ConnectReply> Connect(const v1::BufferDescriptor& buffer, bool writable,
                                   uint64_t allocation_id) {
    v1::ConnectRequest request;
    request.set_session(session());
    v1::Wanted& wanted = *request.add_wanted();
    wanted.set_buffer_id(buffer.id());
    wanted.set_buffer_generation(buffer.generation());
    wanted.set_allocation_id(allocation_id);
    wanted.set_writable(writable);
    return Call<v1::ConnectReply>(&v1::Peer::Stub::Connect, request);
  }
  // The ticket for the first allocation of the buffer.
  std::string TicketFor(const v1::BufferDescriptor& buffer, bool writable) {
    const auto reply = Connect(buffer, writable, buffer.allocations(0).id());
    EXPECT_TRUE(reply) << reply.error().message;
    return reply ? reply->tickets(0).ticket() : std::string(32, '0');
  }
  Result<v1::OpenStreamsReply> OpenStreams(uint32_t count) {
    v1::OpenStreamsRequest request;
    request.set_session(session());
    request.set_count(count);
    return Call<v1::OpenStreamsReply>(&v1::Peer::Stub::OpenStreams, request);
  }
  Status Acknowledge(uint64_t revocation) {
    v1::AcknowledgeRequest request;
    request.set_session(session());
    request.add_revocations(revocation);
    RETURN_IF_ERROR(Call<v1::AcknowledgeReply>(&v1::Peer::Stub::Acknowledge, request));
    return {};
  }

 private:
  const std::string fd_path_;
  const wire::PeerIdentity self_;
  std::unique_ptr<v1::Peer::Stub> stub_;
  grpc::ClientContext watch_context_;
  std::unique_ptr<grpc::ClientReader<v1::WatchEvent>> watch_;
  v1::Started started_;
  UniqueFd lease_;
};

}  // namespace gantry::testing
