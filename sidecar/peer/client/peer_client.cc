#include "sidecar/peer/client/peer_client.h"

#include <fcntl.h>
#include <grpcpp/grpcpp.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <utility>

#include "lib/base/fd_passing.h"
#include "lib/base/mutex.h"
#include "lib/wire/fd_ticket_protocol.h"
#include "lib/wire/peer_execution_messages.h"
#include "lib/wire/peer_messages.h"
#include "lib/wire/rdma_messages.h"
#include "sidecar/peer/client/described_buffer.h"
#include "sidecar/peer/client/execution_calls.h"
#include "sidecar/peer/client/queue_pair_calls.h"
#include "sidecar/peer/client/stage_calls.h"
#include "sidecar/peer/client/watch_reader.h"
#include "sidecar/peer/identity/session_proof.h"
#include "sidecar/peer/identity/verified_identity.h"

namespace gantry::peer {
namespace {

Status SetReceiveDeadline(int socket, TimePoint deadline) {
  const auto left = std::chrono::duration_cast<microseconds>(deadline - Clock::now());
  if (left.count() <= 0) return Fail(ErrorCode::kDeadlineExceeded, "no time left");
  const timeval timeout = {static_cast<time_t>(left.count() / 1'000'000),
                           static_cast<suseconds_t>(left.count() % 1'000'000)};
  if (::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout)) == 0) return {};
  return Fail(SystemError(ErrorCode::kInternal, "SO_RCVTIMEO", errno));
}

// The two ends of the lease connection may no longer agree on which answer is next.
bool LostStep(ErrorCode code) {
  return code == ErrorCode::kDeadlineExceeded || code == ErrorCode::kPeerLost ||
         code == ErrorCode::kMalformedBody;
}

class GrpcPeerClient final : public PeerClient {
 public:
  GrpcPeerClient(Options options, PeerAddress address, EventHandler on_event)
      : options_(std::move(options)), address_(std::move(address)), watch_(std::move(on_event)) {}

  Status Open(TimePoint deadline) override;

  const Facts& facts() const override { return facts_; }
  std::shared_ptr<const UniqueFd> lease() const override EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return lease_;
  }
  Result<std::vector<Result<wire::PeerBuffer>>> Describe(
      const std::vector<wire::BufferReference>& references, TimePoint deadline) override;
  Result<std::vector<UniqueFd>> FetchDescriptors(const std::vector<wire::WantedAllocation>& wanted,
                                                 TimePoint deadline) override;
  Result<wire::PeerStreams> OpenStreams(size_t count, TimePoint deadline) override;
  Result<wire::QueuePairGrant> ConnectQueuePairs(
      const std::vector<wire::QueuePairRequest>& requests, TimePoint deadline) override {
    return CallConnectQueuePairs(Place(), requests, deadline);
  }
  Status EndQueuePairs(uint64_t connection, TimePoint deadline) override {
    return CallEndQueuePairs(Place(), connection, deadline);
  }
  Result<wire::StageGrant> OpenStage(uint32_t slices, TimePoint deadline) override {
    return CallOpenStage(Place(), slices, deadline);
  }
  Status CloseStage(uint64_t stage, TimePoint deadline) override {
    return CallCloseStage(Place(), stage, deadline);
  }
  Result<std::optional<Error>> CopyStaged(const wire::StagedMove& move,
                                          TimePoint deadline) override {
    return CallCopyStaged(Place(), move, deadline);
  }
  Status Acknowledge(const std::vector<uint64_t>& revocations, TimePoint deadline) override;
  Status Notify(const wire::Notification& notification, TimePoint deadline) override;
  Result<uint64_t> UseHold(const wire::HoldUse& use, TimePoint deadline) override;
  Result<size_t> EndHoldUses(std::span<const wire::HoldUseEnd> ends, TimePoint deadline) override;
  Result<wire::PeerExecutionEnd> Execute(const wire::PeerExecution& what, TimePoint deadline,
                                         CallCanceller& stop,
                                         engine::PeerExecutor::Watcher& watcher) override {
    return CallExecute(Place(), what, deadline, stop, watcher);
  }
  Result<wire::PeerExecutionEnd> EndExecution(const std::string& id, TimePoint deadline) override {
    return CallEndExecution(Place(), id, deadline);
  }
  std::string Proof() const override { return SessionProof(session_); }
  void StopFetching() override EXCLUDES(mutex_);
  void Break() override;

 private:
  CallContext Place() { return Place(other_calls_); }
  CallContext Place(CallCanceller& calls) { return {*stub_, session_, authorization_, calls}; }
  TimePoint WithinTimeout(TimePoint deadline) const {
    return std::min(deadline, Clock::now() + options_.call_timeout);
  }
  Status SayHello(TimePoint deadline);
  Status Watch(TimePoint deadline);
  Status OpenLease(const v1::Started& started, TimePoint deadline);
  Status MeasureRoundTrip(TimePoint deadline);
  Result<std::vector<UniqueFd>> Exchange(const wire::FdTicketRequest& request, TimePoint deadline);
  Status DescribeSome(const std::vector<wire::BufferReference>& references, size_t begin,
                      size_t end, TimePoint deadline,
                      std::vector<Result<wire::PeerBuffer>>* buffers);

  // One call within the caller's deadline and the call timeout, until `calls` ends it.
  template <typename Request, typename Reply>
  Result<Reply> Call(PeerMethod<Request, Reply> method, Request request, TimePoint deadline,
                     CallCanceller& calls) {
    return Place(calls).Call(method, std::move(request), WithinTimeout(deadline));
  }

  const Options options_;
  const PeerAddress address_;
  std::string authorization_;
  std::string host_;  // over TCP: the address that the channel goes to
  Facts facts_;
  std::string session_;
  CallCanceller fetches_;  // Describe, Connect, Notify, and what goes over the lease connection
  CallCanceller other_calls_;
  mutable Mutex mutex_;
  std::shared_ptr<const UniqueFd> lease_ GUARDED_BY(mutex_);
  std::unique_ptr<v1::Peer::Stub> stub_;
  uint32_t version_ = 0;
  size_t hold_use_ends_max_ = 1;  // of one call
  WatchReader watch_;             // last: goes first, so that no event finds the others gone
};

Status GrpcPeerClient::Open(TimePoint deadline) {
  ASSIGN_OR_RETURN(PeerChannel made, MakePeerChannel(address_, options_.channel, deadline,
                                                     [this] { return other_calls_.cancelled(); }));
  authorization_ = std::move(made.authorization);
  host_ = std::move(made.host);
  stub_ = v1::Peer::NewStub(std::move(made.channel));
  if (Status said = SayHello(deadline); !said) {
    if (host_ == address_.tcp.host) return said;
    return Fail(std::move(said).error().WithContext(HostPort{host_, address_.tcp.port}.Text()));
  }
  RETURN_IF_ERROR(Watch(deadline));
  return MeasureRoundTrip(deadline);
}

Status GrpcPeerClient::SayHello(TimePoint deadline) {
  v1::HelloRequest request;
  request.set_version_min(options_.versions.min);
  request.set_version_max(options_.versions.max);
  wire::ToMessage(options_.self, request.mutable_initiator());
  v1::HelloReply reply;
  grpc::ClientContext context;
  if (Status said =
          Place().Call(&v1::Peer::Stub::Hello, request, &reply, WithinTimeout(deadline), &context);
      !said) {
    return Fail(std::move(said).error().WithContext("Hello was refused"));
  }
  facts_.verified_identity = VerifiedIdentity(context.auth_context().get(), address_.over_tcp());
  RETURN_IF_ERROR(wire::ChoosePeerVersion(options_.versions, {reply.version(), reply.version()}));
  version_ = reply.version();
  for (const std::string& capability : reply.capabilities()) {
    if (capability == wire::kPeerHoldUseEnds) hold_use_ends_max_ = wire::kPeerHoldUseEndsMax;
    if (capability == wire::kPeerExecutions) facts_.executes = true;
  }
  if (reply.quiesce_ms_max() > 0) {
    facts_.quiesce_max = std::min(milliseconds(reply.quiesce_ms_max()), wire::kPeerQuiesceMax);
  }
  ASSIGN_OR_RETURN(std::vector<std::string> gpus, wire::GpusOf(reply));
  facts_.gpus = std::make_shared<const std::vector<std::string>>(std::move(gpus));
  ASSIGN_OR_RETURN(facts_.rdma_devices, wire::RdmaDevicesOf(reply));
  ASSIGN_OR_RETURN(facts_.owner, wire::FromMessage(reply.owner()));
  ASSIGN_OR_RETURN(facts_.paths, wire::FromMessage(reply.paths()));
  KeepPossible(address_.over_tcp(), version_, &facts_.paths);
  if (facts_.owner.generation != options_.self.generation) return {};
  return Fail(ErrorCode::kInvalidArgument, "the address is this sidecar's own",
              "name buffers of this sidecar without a peer");
}

Status GrpcPeerClient::Watch(TimePoint deadline) {
  v1::WatchRequest request;
  wire::ToMessage(options_.self, request.mutable_initiator());
  request.set_version(version_);
  request.set_owner_generation(facts_.owner.generation);
  RETURN_IF_ERROR(watch_.Start(*stub_, std::move(request), authorization_));
  ASSIGN_OR_RETURN(const v1::Started started, watch_.AwaitStarted(deadline));
  if (started.owner_generation() != facts_.owner.generation) {
    return Fail(ErrorCode::kStaleGeneration, "the peer was restarted meanwhile");
  }
  session_ = started.session();
  facts_.heartbeat = milliseconds(std::clamp<uint32_t>(started.heartbeat_ms(), 1, 60'000));
  return address_.over_tcp() ? Status() : OpenLease(started, deadline);
}

Status GrpcPeerClient::OpenLease(const v1::Started& started, TimePoint deadline) {
  RETURN_IF_ERROR(wire::CheckSecret(started.lease_ticket(), "lease_ticket"));
  RETURN_IF_ERROR(wire::CheckSocketName(started.fd_socket()));
  const std::string& own = address_.socket_path;
  ASSIGN_OR_RETURN(UniqueFd fd,
                   ConnectChecked(own.substr(0, own.rfind('/') + 1) + started.fd_socket(),
                                  SOCK_SEQPACKET, options_.channel.uids_allowed));
  const int flags = ::fcntl(fd.get(), F_GETFL);
  if (flags < 0 || ::fcntl(fd.get(), F_SETFL, flags & ~O_NONBLOCK) != 0) {
    return Fail(SystemError(ErrorCode::kInternal, "F_SETFL", errno));
  }
  {
    const MutexLock lock(mutex_);
    lease_ = std::make_shared<const UniqueFd>(std::move(fd));
  }
  RETURN_IF_ERROR(Exchange({wire::FdTicketVerb::kLease, started.lease_ticket()}, deadline));
  return {};
}

Status GrpcPeerClient::MeasureRoundTrip(TimePoint deadline) {
  const TimePoint begin = Clock::now();
  RETURN_IF_ERROR(Call(&v1::Peer::Stub::Ping, v1::PingRequest(), deadline, other_calls_));
  facts_.rtt_us =
      static_cast<uint64_t>(std::chrono::duration_cast<microseconds>(Clock::now() - begin).count());
  return {};
}

Result<std::vector<UniqueFd>> GrpcPeerClient::Exchange(const wire::FdTicketRequest& request,
                                                       TimePoint deadline) {
  const std::shared_ptr<const UniqueFd> connection = lease();
  const int socket = connection->get();
  // After it was stored: StopFetching finds it, or is found here.
  if (fetches_.cancelled()) return Fail(ErrorCode::kCancelled, "fetching was stopped");
  RETURN_IF_ERROR(SetReceiveDeadline(socket, deadline));
  RETURN_IF_ERROR(SendMessage(socket, Encode(request), {}));
  ASSIGN_OR_RETURN(FdMessage message, ReceiveMessage(socket, wire::kFdTicketReplyBytesMax));
  if (message.closed) return Fail(ErrorCode::kPeerLost, "the peer closed its descriptor socket");
  ASSIGN_OR_RETURN(const size_t count, wire::DecodeFdTicketReply(message.payload));
  if (count == message.fds.size()) return std::move(message.fds);
  return Fail(ErrorCode::kMalformedBody,
              "the peer sent another number of descriptors than it said");
}

// Shut down for reading alone: the owner would take the end of the other direction for the proof
// that nothing is mapped.
void GrpcPeerClient::StopFetching() {
  fetches_.Cancel();
  if (const auto connection = lease()) ::shutdown(connection->get(), SHUT_RD);
}

void GrpcPeerClient::Break() {
  watch_.Cancel(Error(ErrorCode::kPeerLost, "the session was given up"));
  other_calls_.Cancel();
  StopFetching();
}

Result<std::vector<Result<wire::PeerBuffer>>> GrpcPeerClient::Describe(
    const std::vector<wire::BufferReference>& references, TimePoint deadline) {
  std::vector<Result<wire::PeerBuffer>> buffers;
  constexpr size_t kBatch = wire::kPeerReferencesMax;
  for (size_t begin = 0; begin < references.size(); begin += kBatch) {
    const size_t end = std::min(references.size(), begin + kBatch);
    RETURN_IF_ERROR(DescribeSome(references, begin, end, deadline, &buffers));
  }
  return buffers;
}

Status GrpcPeerClient::DescribeSome(const std::vector<wire::BufferReference>& references,
                                    size_t begin, size_t end, TimePoint deadline,
                                    std::vector<Result<wire::PeerBuffer>>* buffers) {
  v1::DescribeRequest request;
  for (size_t i = begin; i < end; ++i) {
    v1::Reference& message = *request.add_references();
    message.set_workload(references[i].workload);
    message.set_buffer(references[i].buffer);
    message.set_generation(references[i].generation);
    message.set_workload_generation(references[i].workload_generation);
  }
  ASSIGN_OR_RETURN(const v1::DescribeReply reply,
                   Call(&v1::Peer::Stub::Describe, std::move(request), deadline, fetches_));
  if (static_cast<size_t>(reply.descriptions_size()) != end - begin) {
    return Fail(ErrorCode::kMalformedBody, "the peer described another number of buffers");
  }
  for (size_t i = begin; i < end; ++i) {
    auto taken = TakeDescription(reply.descriptions(static_cast<int>(i - begin)), references[i]);
    if (taken) KeepPossible(address_.over_tcp(), version_, &taken->paths);
    buffers->push_back(std::move(taken));
  }
  return {};
}

Result<std::vector<UniqueFd>> GrpcPeerClient::FetchDescriptors(
    const std::vector<wire::WantedAllocation>& wanted, TimePoint deadline) {
  if (address_.over_tcp()) {
    return Fail(ErrorCode::kPathUnavailable, "no descriptors come over TCP");
  }
  v1::ConnectRequest request;
  for (const wire::WantedAllocation& allocation : wanted) {
    v1::Wanted& message = *request.add_wanted();
    message.set_buffer_id(allocation.buffer_id);
    message.set_buffer_generation(allocation.buffer_generation);
    message.set_allocation_id(allocation.allocation_id);
    message.set_writable(allocation.writable);
  }
  ASSIGN_OR_RETURN(const v1::ConnectReply reply,
                   Call(&v1::Peer::Stub::Connect, std::move(request), deadline, fetches_));
  std::vector<UniqueFd> fds;
  for (const v1::Ticket& ticket : reply.tickets()) {
    RETURN_IF_ERROR(wire::CheckSecret(ticket.ticket(), "ticket"));
    auto some = Exchange({wire::FdTicketVerb::kFds, ticket.ticket()}, WithinTimeout(deadline));
    if (!some) {
      // An answer that comes late must not be taken for that of another question.
      if (LostStep(some.error().code) && !fetches_.cancelled()) Break();
      return Fail(std::move(some).error().WithContext("fetching descriptors"));
    }
    std::move(some->begin(), some->end(), std::back_inserter(fds));
    if (fds.size() > wanted.size()) break;
  }
  if (fds.size() == wanted.size()) return fds;
  return Fail(ErrorCode::kMalformedBody, "the peer sent another number of descriptors than asked");
}

Result<wire::PeerStreams> GrpcPeerClient::OpenStreams(size_t count, TimePoint deadline) {
  if (version_ < wire::kPeerVersionWithStreams) {
    return Fail(ErrorCode::kVersionMismatch, "the peer's sidecar is too old for data connections",
                "upgrade it");
  }
  v1::OpenStreamsRequest request;
  request.set_count(static_cast<uint32_t>(count));
  ASSIGN_OR_RETURN(const v1::OpenStreamsReply reply,
                   Call(&v1::Peer::Stub::OpenStreams, std::move(request), deadline, other_calls_));
  const std::string_view host = address_.over_tcp() ? std::string_view(host_) : "127.0.0.1";
  ASSIGN_OR_RETURN(wire::PeerStreams streams, wire::FromMessage(reply, host));
  if (streams.tickets.size() <= count) return streams;
  return Fail(ErrorCode::kMalformedBody, "the peer sent more tickets than it was asked for");
}

Status GrpcPeerClient::Acknowledge(const std::vector<uint64_t>& revocations, TimePoint deadline) {
  constexpr size_t kBatch = wire::kPeerAcknowledgedMax;
  for (size_t begin = 0; begin < revocations.size(); begin += kBatch) {
    v1::AcknowledgeRequest request;
    for (size_t i = begin; i < std::min(revocations.size(), begin + kBatch); ++i) {
      request.add_revocations(revocations[i]);
    }
    RETURN_IF_ERROR(Call(&v1::Peer::Stub::Acknowledge, std::move(request), deadline, other_calls_));
  }
  return {};
}

Status GrpcPeerClient::Notify(const wire::Notification& notification, TimePoint deadline) {
  v1::NotifyRequest request;
  wire::ToMessage(notification, &request);
  RETURN_IF_ERROR(Call(&v1::Peer::Stub::Notify, std::move(request), deadline, fetches_));
  return {};
}

Result<uint64_t> GrpcPeerClient::UseHold(const wire::HoldUse& use, TimePoint deadline) {
  v1::UseHoldRequest request;
  wire::ToMessage(use, &request);
  ASSIGN_OR_RETURN(const v1::UseHoldReply reply,
                   Call(&v1::Peer::Stub::UseHold, std::move(request), deadline, fetches_));
  return reply.use();
}

Result<size_t> GrpcPeerClient::EndHoldUses(std::span<const wire::HoldUseEnd> ends,
                                           TimePoint deadline) {
  const size_t count = std::min(ends.size(), hold_use_ends_max_);
  v1::EndHoldUseRequest request;
  wire::ToMessage(ends.first(count), &request);
  RETURN_IF_ERROR(Call(&v1::Peer::Stub::EndHoldUse, std::move(request), deadline, fetches_));
  return count;
}

}  // namespace

std::unique_ptr<PeerClient> PeerClient::Make(Options options, PeerAddress address,
                                             EventHandler on_event) {
  return std::make_unique<GrpcPeerClient>(std::move(options), std::move(address),
                                          std::move(on_event));
}

}  // namespace gantry::peer
