#include "sidecar/peer/server/peer_service.h"

#include <memory>
#include <utility>

#include "lib/base/fd_passing.h"
#include "lib/base/log.h"
#include "lib/wire/peer_execution_messages.h"
#include "lib/wire/peer_message_limit.h"
#include "sidecar/peer/identity/verified_identity.h"
#include "sidecar/peer/server/buffer_export.h"
#include "sidecar/peer/server/watch_stream.h"

namespace gantry::peer {
namespace {

constexpr char kFdTickets[] = "fd_tickets";

Error NotGranted(const std::string& workload) {
  return {ErrorCode::kPermissionDenied,
          "the peer's certificate gives no such access to workload '" + workload + "'",
          "the owner's --peer-rules say which names may ask for what"};
}

}  // namespace

PeerService::PeerService(Options options, const registry::BufferRegistry& registry,
                         InitiatorTable& initiators, FdTickets& tickets, StreamOffers& streams,
                         const QueuePairOffers& queue_pairs, const StageOffers& stages)
    : options_(std::move(options)),
      registry_(registry),
      initiators_(initiators),
      tickets_(tickets),
      streams_(streams),
      queue_pairs_(queue_pairs),
      stages_(stages),
      fds_(std::make_shared<registry::FdBudget>(options_.fds_max)) {}

grpc::Status PeerService::Hello(grpc::ServerContext* context, const v1::HelloRequest* request,
                                v1::HelloReply* reply) {
  return Admitted(*context, [&](const PeerGrant&) { return AnswerHello(*request, reply); });
}

Status PeerService::AnswerHello(const v1::HelloRequest& request, v1::HelloReply* reply) const {
  const wire::PeerVersions theirs = {request.version_min(), request.version_max()};
  ASSIGN_OR_RETURN(const uint32_t version, wire::ChoosePeerVersion(options_.versions, theirs));
  ASSIGN_OR_RETURN(const PeerIdentity initiator, wire::FromMessage(request.initiator()));
  if (request.capabilities_size() > wire::kPeerCapabilitiesMax) {
    return Fail(ErrorCode::kMalformedBody, "too many capabilities");
  }
  reply->set_version(version);
  reply->set_version_min(options_.versions.min);
  reply->set_version_max(options_.versions.max);
  wire::ToMessage(options_.self, reply->mutable_owner());
  if (!over_tcp()) reply->add_capabilities(kFdTickets);
  reply->add_capabilities(std::string(wire::kPeerHoldUseEnds));
  if (options_.executions != nullptr) {
    reply->add_capabilities(std::string(wire::kPeerExecutions));
    reply->set_quiesce_ms_max(
        static_cast<uint32_t>(std::min(options_.quiesce_max, wire::kPeerQuiesceMax).count()));
  }
  const std::vector<std::string> gpus =
      options_.gpus ? options_.gpus() : std::vector<std::string>();
  for (const std::string& uuid : gpus) {
    if (reply->gpus_size() < wire::kPeerGpusMax) reply->add_gpus(uuid);
  }
  queue_pairs_.AddDevices(reply);
  wire::ToMessage(PathsBetween(options_.self, initiator, over_tcp(), options_.paths()),
                  reply->mutable_paths());
  return {};
}

grpc::Status PeerService::Watch(grpc::ServerContext* context, const v1::WatchRequest* request,
                                grpc::ServerWriter<v1::WatchEvent>* writer) {
  const auto grant = options_.admission.Admit(*context);
  if (!grant) return ToGrpcStatus(grant.error());
  const auto initiator = CheckWatch(*request);
  if (!initiator) return ToGrpcStatus(initiator.error());
  return WatchAs(*initiator, context, writer);
}

grpc::Status PeerService::WatchAs(const PeerIdentity& initiator, grpc::ServerContext* context,
                                  grpc::ServerWriter<v1::WatchEvent>* writer) {
  WatchStream stream(*context, *writer);
  auto opened = initiators_.Open(
      initiator, VerifiedIdentity(context->auth_context().get(), over_tcp()), over_tcp(), &stream);
  if (!opened) return ToGrpcStatus(opened.error());
  const auto kept = options_.keep_connection ? options_.keep_connection(context->peer()) : nullptr;
  v1::WatchEvent event;
  v1::Started& started = *event.mutable_started();
  started.set_session(opened->session);
  started.set_owner_generation(options_.self.generation);
  if (!over_tcp()) {
    started.set_fd_socket(options_.fd_socket_name);
    started.set_lease_ticket(opened->lease_ticket);
  }
  started.set_heartbeat_ms(static_cast<uint32_t>(options_.heartbeat.count()));
  stream.Push(std::move(event));
  log::Info("a peer watches this sidecar", {{"peer", initiator.name}, {"over_tcp", over_tcp()}});
  grpc::Status status = stream.Run();
  initiators_.Ending(opened->session);
  streams_.End(opened->session);
  queue_pairs_.EndSession(opened->session);
  stages_.EndSession(opened->session);
  initiators_.StreamEnded(opened->session);
  if (over_tcp() && options_.holds != nullptr) options_.holds->LoseUses(opened->session);
  if (options_.executions != nullptr) options_.executions->EndSession(opened->session);
  tickets_.DropSession(opened->session);
  return status;
}

Result<PeerIdentity> PeerService::CheckWatch(const v1::WatchRequest& request) const {
  if (request.owner_generation() != options_.self.generation) {
    return Fail(ErrorCode::kStaleGeneration, "this sidecar was restarted", "say Hello again");
  }
  RETURN_IF_ERROR(
      wire::ChoosePeerVersion(options_.versions, {request.version(), request.version()}));
  return wire::FromMessage(request.initiator());
}

grpc::Status PeerService::Describe(grpc::ServerContext* context, const v1::DescribeRequest* request,
                                   v1::DescribeReply* reply) {
  return Admitted(*context,
                  [&](const PeerGrant& grant) { return DescribeAll(grant, *request, reply); });
}

Status PeerService::DescribeAll(const PeerGrant& grant, const v1::DescribeRequest& request,
                                v1::DescribeReply* reply) {
  RETURN_IF_ERROR(wire::CheckReferenceCount(request));
  ASSIGN_OR_RETURN(const PeerIdentity initiator,
                   initiators_.InitiatorOf(request.session(), over_tcp()));
  for (const v1::Reference& reference : request.references()) {
    v1::Description& description = *reply->add_descriptions();
    if (const auto buffer = DescribeOne(request.session(), initiator, grant, reference)) {
      wire::ToMessage(*buffer, description.mutable_buffer());
    } else {
      wire::ToMessage(buffer.error(), description.mutable_problem());
    }
  }
  return {};
}

Result<wire::PeerBuffer> PeerService::DescribeOne(const std::string& session,
                                                  const PeerIdentity& initiator,
                                                  const PeerGrant& grant,
                                                  const v1::Reference& message) {
  ASSIGN_OR_RETURN(const wire::BufferReference reference, wire::FromMessage(message));
  // Before it is looked for: who may not see a workload does not learn what it has.
  const wire::Access granted = grant.Over(reference.workload);
  if (!granted.remote_read && !granted.remote_write) return Fail(NotGranted(reference.workload));
  RETURN_IF_ERROR(registry_.CheckLife(reference.workload, reference.workload_generation));
  ASSIGN_OR_RETURN(const std::shared_ptr<registry::Buffer> buffer,
                   registry_.ByName(reference.workload, reference.buffer));
  const registry::Buffer::Description& description = buffer->description();
  if (reference.generation != 0 && reference.generation != description.generation) {
    return Fail(ErrorCode::kStaleGeneration,
                "buffer '" + reference.workload + "/" + reference.buffer + "' was registered anew");
  }
  // A revocation that begins after the buffer's state was read finds the description.
  ASSIGN_OR_RETURN(const uint64_t number, initiators_.BeginDescribe(session, description.id));
  auto exported =
      ExportBuffer(*buffer, PathsBetween(options_.self, initiator, over_tcp(), options_.paths()),
                   {streams_.WhyNotStaged(wire::MemoryKind::kGpu), stages_.WhyNot(),
                    streams_.WhyNotStaged(wire::MemoryKind::kHost)});
  if (exported) {
    const wire::Access all = exported->access;
    wire::Access& access = exported->access;
    access.remote_read = access.remote_read && granted.remote_read;
    access.remote_write = access.remote_write && granted.remote_write;
    if (access != all) QueuePairOffers::Hide(&*exported);
    if (!access.remote_read && !access.remote_write) {
      exported = Fail(NotGranted(reference.workload));
    }
  }
  if (exported) {
    initiators_.CommitDescribe(session, description.id, number, exported->access);
  } else {
    initiators_.AbortDescribe(session, description.id, number);
  }
  return exported;
}

grpc::Status PeerService::Connect(grpc::ServerContext* context, const v1::ConnectRequest* request,
                                  v1::ConnectReply* reply) {
  return Admitted(*context, [&](const PeerGrant&) { return IssueTickets(*request, reply); });
}

Status PeerService::IssueTickets(const v1::ConnectRequest& request, v1::ConnectReply* reply) {
  RETURN_IF_ERROR(initiators_.InitiatorOf(request.session(), over_tcp()));
  RETURN_IF_ERROR(initiators_.CheckMayConnect(request.session()));
  ASSIGN_OR_RETURN(const std::vector<wire::WantedAllocation> wanted, wire::FromMessage(request));
  size_t done = 0;
  while (done < wanted.size()) {
    const size_t count = std::min(wanted.size() - done, kFdsPerMessageMax);
    std::vector<FdTickets::Entry> entries;
    for (size_t i = 0; i < count; ++i) {
      ASSIGN_OR_RETURN(FdTickets::Entry entry, Export(request.session(), wanted[done + i]));
      entries.push_back(std::move(entry));
    }
    ASSIGN_OR_RETURN(std::string ticket, tickets_.Issue(request.session(), std::move(entries)));
    v1::Ticket& message = *reply->add_tickets();
    message.set_ticket(std::move(ticket));
    message.set_descriptors(static_cast<uint32_t>(count));
    message.set_expires_ms(static_cast<uint32_t>(options_.ticket_ttl.count()));
    done += count;
  }
  return {};
}

Result<FdTickets::Entry> PeerService::Export(const std::string& session,
                                             const wire::WantedAllocation& wanted) const {
  if (!initiators_.IsDescribed(session, wanted.buffer_id)) {
    return Fail(ErrorCode::kStaleGeneration, "the buffer was not described, or was revoked since",
                "ask for its description again");
  }
  const auto buffer = registry_.ById(wanted.buffer_id);
  if (!buffer)
    return Fail(ErrorCode::kUnregistered, "the buffer was removed after its description");
  if (!fds_->Take(1)) {
    return Fail(
        ErrorCode::kResourceExhausted,
        std::to_string(fds_->held()) + " descriptors are waiting to be fetched",
        "fetch them with their tickets, wait until those expire, or raise --peer-fds-max, which "
        "is an eighth of the process's limit of descriptors at most");
  }
  auto exported = ExportDescriptor(**buffer, wanted);
  if (!exported) {
    fds_->GiveBack(1);
    return Fail(std::move(exported).error());
  }
  // Also one that the allocation holds anyway counts as long as the ticket does.
  const UniqueFd* fd = exported->get();
  return FdTickets::Entry{
      wanted.buffer_id, {fd, [held = *std::move(exported), budget = fds_](const UniqueFd*) mutable {
                           held.reset();
                           budget->GiveBack(1);
                         }}};
}

grpc::Status PeerService::OpenStreams(grpc::ServerContext* context,
                                      const v1::OpenStreamsRequest* request,
                                      v1::OpenStreamsReply* reply) {
  return Admitted(*context, [&](const PeerGrant&) -> Status {
    RETURN_IF_ERROR(initiators_.InitiatorOf(request->session(), over_tcp()));
    return streams_.Offer(request->session(), request->count(), reply);
  });
}

grpc::Status PeerService::Acknowledge(grpc::ServerContext* context,
                                      const v1::AcknowledgeRequest* request,
                                      v1::AcknowledgeReply*) {
  return Admitted(*context, [&](const PeerGrant&) { return TakeAcknowledgement(*request); });
}

Status PeerService::TakeAcknowledgement(const v1::AcknowledgeRequest& request) {
  if (request.revocations_size() > wire::kPeerAcknowledgedMax) {
    return Fail(ErrorCode::kMalformedBody, "too many revocations in one acknowledgement");
  }
  RETURN_IF_ERROR(initiators_.InitiatorOf(request.session(), over_tcp()));
  return initiators_.Acknowledge(request.session(),
                                 {request.revocations().begin(), request.revocations().end()});
}

grpc::Status PeerService::Notify(grpc::ServerContext* context, const v1::NotifyRequest* request,
                                 v1::NotifyReply*) {
  return Admitted(*context,
                  [&](const PeerGrant& grant) { return TakeNotification(grant, *request); });
}

Status PeerService::TakeNotification(const PeerGrant& grant, const v1::NotifyRequest& request) {
  ASSIGN_OR_RETURN(const PeerIdentity initiator,
                   initiators_.InitiatorOf(request.session(), over_tcp()));
  if (options_.notifications == nullptr) {
    return Fail(ErrorCode::kVersionMismatch, "this sidecar takes no notifications");
  }
  ASSIGN_OR_RETURN(wire::Notification notification, wire::FromMessage(request));
  const wire::Access granted = grant.Over(notification.content.to);
  if (!granted.remote_read && !granted.remote_write) {
    return Fail(NotGranted(notification.content.to));
  }
  notification.from_peer = initiator.name;
  notification.from_peer_generation = initiator.generation;
  return options_.notifications->Deliver(std::move(notification));
}

grpc::Status PeerService::UseHold(grpc::ServerContext* context, const v1::UseHoldRequest* request,
                                  v1::UseHoldReply* reply) {
  return Admitted(*context,
                  [&](const PeerGrant& grant) { return TakeHoldUse(grant, *request, reply); });
}

Status PeerService::TakeHoldUse(const PeerGrant& grant, const v1::UseHoldRequest& request,
                                v1::UseHoldReply* reply) {
  RETURN_IF_ERROR(initiators_.InitiatorOf(request.session(), over_tcp()));
  ASSIGN_OR_RETURN(const wire::HoldUse use, wire::FromMessage(request));
  const wire::Access granted = grant.Over(use.workload);
  if (!granted.remote_read && !granted.remote_write) return Fail(NotGranted(use.workload));
  if (options_.holds == nullptr) {
    return Fail(ErrorCode::kVersionMismatch, "this sidecar keeps no holds");
  }
  ASSIGN_OR_RETURN(const uint64_t number, options_.holds->Use(use, request.session()));
  reply->set_use(number);
  return {};
}

grpc::Status PeerService::EndHoldUse(grpc::ServerContext* context,
                                     const v1::EndHoldUseRequest* request, v1::EndHoldUseReply*) {
  // Whoever knows the number began it, perhaps in a session before this one.
  return Admitted(*context, [&](const PeerGrant&) -> Status {
    RETURN_IF_ERROR(initiators_.InitiatorOf(request->session(), over_tcp()));
    ASSIGN_OR_RETURN(const std::vector<wire::HoldUseEnd> ends, wire::FromMessage(*request));
    if (options_.holds == nullptr) return {};
    for (const wire::HoldUseEnd& end : ends) options_.holds->EndUse(end.use, end.succeeded);
    return {};
  });
}

grpc::Status PeerService::Execute(grpc::ServerContext* context, const v1::ExecuteRequest* request,
                                  grpc::ServerWriter<v1::ExecuteEvent>* writer) {
  return Admitted(*context, [&](const PeerGrant& grant) {
    return ExecuteFor(grant, *context, *request, writer);
  });
}

Status PeerService::ExecuteFor(const PeerGrant& grant, grpc::ServerContext& context,
                               const v1::ExecuteRequest& request,
                               grpc::ServerWriter<v1::ExecuteEvent>* writer) {
  ASSIGN_OR_RETURN(const PeerIdentity initiator,
                   initiators_.InitiatorOf(request.session(), over_tcp()));
  if (options_.executions == nullptr) {
    return Fail(ErrorCode::kVersionMismatch, "this sidecar executes nothing for peers");
  }
  ASSIGN_OR_RETURN(wire::PeerExecution execution, wire::FromMessage(request));
  bool accepted = false;
  ExecutionServer::Caller caller{request.session(), initiator.name, grant, {}, {}, {}};
  caller.gone = [&context] { return context.IsCancelled(); };
  caller.hang_up = [&context] { context.TryCancel(); };
  caller.on_status = [&](const engine::TransferStatus& status) {
    v1::ExecuteEvent event;
    if (!std::exchange(accepted, true)) {
      event.mutable_accepted()->set_path(wire::InfoOf(status.path).number);
      wire::ToMessage(status.paths, event.mutable_accepted()->mutable_paths());
    } else {
      event.mutable_progress()->set_bytes(status.bytes_moved);
    }
    writer->Write(event);
  };
  v1::ExecuteEvent last;
  wire::ToMessage(options_.executions->Execute(caller, std::move(execution)), last.mutable_ended());
  writer->Write(last);
  return {};
}

grpc::Status PeerService::EndExecution(grpc::ServerContext* context,
                                       const v1::EndExecutionRequest* request,
                                       v1::ExecutionEnded* reply) {
  return Admitted(*context, [&](const PeerGrant&) -> Status {
    // The session's secret says enough: it is when a session ended that this is asked.
    RETURN_IF_ERROR(wire::CheckSecret(request->session(), "session"));
    RETURN_IF_ERROR(wire::LimitOfPeer("id", request->id().size(), wire::kPeerIdBytesMax));
    if (options_.executions == nullptr) return {};
    ASSIGN_OR_RETURN(const wire::PeerExecutionEnd end,
                     options_.executions->End(request->session(), request->id()));
    wire::ToMessage(end, reply);
    return {};
  });
}

grpc::Status PeerService::Ping(grpc::ServerContext* context, const v1::PingRequest*,
                               v1::PingReply* reply) {
  return Admitted(*context, [&](const PeerGrant&) -> Status {
    reply->set_owner_generation(options_.self.generation);
    return {};
  });
}

}  // namespace gantry::peer
