// The owner's side of the peer API's calls, for one listener. Authenticates callers, checks
// requests, and answers from the registry and the initiator table. Watch and Execute occupy their
// thread until they end. Thread-safe.
#pragma once

#include <grpcpp/server_context.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lib/wire/peer.grpc.pb.h"
#include "lib/wire/peer_messages.h"
#include "lib/wire/session_times.h"
#include "sidecar/messaging/hold_table.h"
#include "sidecar/messaging/notification_center.h"
#include "sidecar/peer/execution/execution_server.h"
#include "sidecar/peer/identity/grpc_status.h"
#include "sidecar/peer/identity/peer_admission.h"
#include "sidecar/peer/identity/peer_identity.h"
#include "sidecar/peer/server/fd_tickets.h"
#include "sidecar/peer/server/initiator_table.h"
#include "sidecar/peer/server/queue_pair_offers.h"
#include "sidecar/peer/server/stage_offers.h"
#include "sidecar/peer/server/stream_offers.h"
#include "sidecar/registry/buffer_registry.h"
#include "sidecar/registry/fd_budget.h"

namespace gantry::peer {

class PeerService final : public v1::Peer::Service {
 public:
  struct Options {
    PeerIdentity self;
    std::function<std::vector<wire::PathReport>()> paths;  // see PeerServerOptions::paths
    std::string fd_socket_name;
    milliseconds heartbeat = wire::kHeartbeat;
    milliseconds ticket_ttl{5'000};
    size_t fds_max = 4096;  // in tickets
    PeerAdmission admission;
    wire::PeerVersions versions = wire::kPeerVersions;
    engine::NotificationCenter* notifications = nullptr;  // null: refused
    engine::HoldTable* holds = nullptr;                   // null: none are readable
    ExecutionServer* executions = nullptr;                // null: refused
    milliseconds quiesce_max = wire::kQuiesceMax;         // the engine's, for executions
    std::function<std::vector<std::string>()> gpus = {};  // UUIDs announced to peers; null: none
    // Keeps the connection of this peer (ServerContext::peer) while the result lives. May be null.
    std::function<std::shared_ptr<void>(const std::string& peer)> keep_connection = {};
  };

  PeerService(Options options, const registry::BufferRegistry& registry, InitiatorTable& initiators,
              FdTickets& tickets, StreamOffers& streams, const QueuePairOffers& queue_pairs,
              const StageOffers& stages);

  grpc::Status Hello(grpc::ServerContext* context, const v1::HelloRequest* request,
                     v1::HelloReply* reply) override;
  grpc::Status Watch(grpc::ServerContext* context, const v1::WatchRequest* request,
                     grpc::ServerWriter<v1::WatchEvent>* writer) override;
  grpc::Status Describe(grpc::ServerContext* context, const v1::DescribeRequest* request,
                        v1::DescribeReply* reply) override;
  grpc::Status Connect(grpc::ServerContext* context, const v1::ConnectRequest* request,
                       v1::ConnectReply* reply) override;
  grpc::Status OpenStreams(grpc::ServerContext* context, const v1::OpenStreamsRequest* request,
                           v1::OpenStreamsReply* reply) override;
  grpc::Status ConnectQueuePairs(grpc::ServerContext* context,
                                 const v1::ConnectQueuePairsRequest* request,
                                 v1::ConnectQueuePairsReply* reply) override;
  grpc::Status EndQueuePairs(grpc::ServerContext* context, const v1::EndQueuePairsRequest* request,
                             v1::EndQueuePairsReply* reply) override;
  grpc::Status OpenStage(grpc::ServerContext* context, const v1::OpenStageRequest* request,
                         v1::OpenStageReply* reply) override;
  grpc::Status CloseStage(grpc::ServerContext* context, const v1::CloseStageRequest* request,
                          v1::CloseStageReply* reply) override;
  grpc::Status CopyStaged(grpc::ServerContext* context, const v1::CopyStagedRequest* request,
                          v1::CopyStagedReply* reply) override;
  grpc::Status Acknowledge(grpc::ServerContext* context, const v1::AcknowledgeRequest* request,
                           v1::AcknowledgeReply* reply) override;
  grpc::Status Notify(grpc::ServerContext* context, const v1::NotifyRequest* request,
                      v1::NotifyReply* reply) override;
  grpc::Status UseHold(grpc::ServerContext* context, const v1::UseHoldRequest* request,
                       v1::UseHoldReply* reply) override;
  grpc::Status EndHoldUse(grpc::ServerContext* context, const v1::EndHoldUseRequest* request,
                          v1::EndHoldUseReply* reply) override;
  grpc::Status Execute(grpc::ServerContext* context, const v1::ExecuteRequest* request,
                       grpc::ServerWriter<v1::ExecuteEvent>* writer) override;
  grpc::Status EndExecution(grpc::ServerContext* context, const v1::EndExecutionRequest* request,
                            v1::ExecutionEnded* reply) override;
  grpc::Status Ping(grpc::ServerContext* context, const v1::PingRequest* request,
                    v1::PingReply* reply) override;

  size_t fds_in_tickets() const { return fds_->held(); }

 private:
  // Returns the status of `handle(grant)`, or the refusal of the caller.
  template <typename Handler>
  grpc::Status Admitted(const grpc::ServerContext& context, const Handler& handle) const {
    const auto grant = options_.admission.Admit(context);
    if (!grant) return ToGrpcStatus(grant.error());
    return ToGrpcStatus(handle(*grant));
  }
  bool over_tcp() const { return options_.admission.over_tcp(); }
  grpc::Status WatchAs(const PeerIdentity& initiator, grpc::ServerContext* context,
                       grpc::ServerWriter<v1::WatchEvent>* writer);
  Status AnswerHello(const v1::HelloRequest& request, v1::HelloReply* reply) const;
  Result<PeerIdentity> CheckWatch(const v1::WatchRequest& request) const;
  Status DescribeAll(const PeerGrant& grant, const v1::DescribeRequest& request,
                     v1::DescribeReply* reply);
  Result<wire::PeerBuffer> DescribeOne(const std::string& session, const PeerIdentity& initiator,
                                       const PeerGrant& grant, const v1::Reference& message);
  Status IssueTickets(const v1::ConnectRequest& request, v1::ConnectReply* reply);
  Result<FdTickets::Entry> Export(const std::string& session,
                                  const wire::WantedAllocation& wanted) const;
  Status ExecuteFor(const PeerGrant& grant, grpc::ServerContext& context,
                    const v1::ExecuteRequest& request,
                    grpc::ServerWriter<v1::ExecuteEvent>* writer);
  Status TakeAcknowledgement(const v1::AcknowledgeRequest& request);
  Status TakeNotification(const PeerGrant& grant, const v1::NotifyRequest& request);
  Status TakeHoldUse(const PeerGrant& grant, const v1::UseHoldRequest& request,
                     v1::UseHoldReply* reply);

  const Options options_;
  const registry::BufferRegistry& registry_;
  InitiatorTable& initiators_;
  FdTickets& tickets_;
  StreamOffers& streams_;
  const QueuePairOffers& queue_pairs_;
  const StageOffers& stages_;
  const std::shared_ptr<registry::FdBudget> fds_;
};

}  // namespace gantry::peer
