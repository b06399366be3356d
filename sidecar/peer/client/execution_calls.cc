#include "sidecar/peer/client/execution_calls.h"

#include <grpcpp/support/sync_stream.h>

#include <optional>
#include <utility>

#include "lib/wire/peer_execution_messages.h"
#include "lib/wire/peer_messages.h"
#include "sidecar/peer/identity/grpc_status.h"

namespace gantry::peer {
namespace {

Status ReportAccepted(const v1::ExecutionAccepted& accepted,
                      engine::PeerExecutor::Watcher& watcher) {
  const auto path = wire::PathByNumber(accepted.path());
  if (!path) return Fail(ErrorCode::kMalformedBody, "the peer takes a path that is not known here");
  ASSIGN_OR_RETURN(auto paths, wire::FromMessage(accepted.paths()));
  watcher.OnAccepted(*path, std::move(paths));
  return {};
}

}  // namespace

Result<wire::PeerExecutionEnd> CallExecute(const CallContext& place,
                                           const wire::PeerExecution& what, TimePoint deadline,
                                           CallCanceller& stop,
                                           engine::PeerExecutor::Watcher& watcher) {
  v1::ExecuteRequest request;
  wire::ToMessage(what, &request);
  request.set_session(place.session);
  grpc::ClientContext context;
  const CallCanceller::Call by_client(place.calls, context);
  const CallCanceller::Call by_stop(stop, context);
  place.Prepare(deadline, &context);
  const auto stream = place.stub.Execute(&context, request);
  std::optional<wire::PeerExecutionEnd> end;
  Status understood;
  v1::ExecuteEvent event;
  while (!end && understood && stream->Read(&event)) {
    switch (event.event_case()) {
      case v1::ExecuteEvent::kAccepted:
        understood = ReportAccepted(event.accepted(), watcher);
        break;
      case v1::ExecuteEvent::kProgress:
        watcher.OnProgress(event.progress().bytes());
        break;
      case v1::ExecuteEvent::kEnded:
        end = wire::FromMessage(event.ended());
        break;
      default:
        break;
    }
  }
  if (end || !understood) context.TryCancel();  // whatever the peer keeps open
  const grpc::Status status = stream->Finish();
  if (end) return *std::move(end);
  if (!understood) return Fail(std::move(understood).error());
  if (!status.ok()) return Fail(FromGrpcStatus(status));
  return Fail(ErrorCode::kPeerLost, "the peer does not say how the execution ended");
}

Result<wire::PeerExecutionEnd> CallEndExecution(const CallContext& place, const std::string& id,
                                                TimePoint deadline) {
  v1::EndExecutionRequest request;
  request.set_session(place.session);
  request.set_id(id);
  v1::ExecutionEnded reply;
  grpc::ClientContext context;
  place.Prepare(deadline, &context);
  const grpc::Status status = place.stub.EndExecution(&context, request, &reply);
  if (status.ok()) return wire::FromMessage(reply);
  return Fail(FromGrpcStatus(status));
}

}  // namespace gantry::peer
