#include "sidecar/peer/client/watch_reader.h"

#include <utility>

#include "lib/base/thread.h"
#include "lib/wire/peer_messages.h"
#include "sidecar/peer/identity/grpc_status.h"

namespace gantry::peer {

WatchReader::~WatchReader() {
  context_.TryCancel();
  if (thread_.joinable()) thread_.join();
}

Status WatchReader::Start(v1::Peer::Stub& stub, v1::WatchRequest request,
                          const std::string& authorization) {
  if (!authorization.empty()) context_.AddMetadata("authorization", authorization);
  ASSIGN_OR_RETURN(
      thread_, StartThread("gantry-watch",
                           [this, &stub, request = std::move(request)] { Read(stub, request); }));
  return {};
}

void WatchReader::Read(v1::Peer::Stub& stub, const v1::WatchRequest& request) {
  const auto stream = stub.Watch(&context_, request);
  v1::WatchEvent event;
  while (stream->Read(&event)) {
    if (Status taken = Take(event); !taken) Cancel(std::move(taken).error());
  }
  const grpc::Status status = stream->Finish();
  Error why(ErrorCode::kPeerLost, "the peer's sidecar ended the session");
  if (!status.ok()) why = FromGrpcStatus(status);
  {
    const MutexLock lock(mutex_);
    if (!why_) why_ = why;
    why = *why_;
    changed_.NotifyAll();
  }
  on_event_(PeerEnded{std::move(why)});
}

Result<v1::Started> WatchReader::AwaitStarted(TimePoint deadline) {
  MutexLock lock(mutex_);
  while (!started_ && !why_) {
    if (!changed_.WaitUntil(lock, deadline)) {
      return Fail(ErrorCode::kDeadlineExceeded, "the peer did not answer Watch in time");
    }
  }
  if (why_) return Fail(*why_);
  return *started_;
}

void WatchReader::Cancel(Error why) {
  {
    const MutexLock lock(mutex_);
    if (!why_) why_ = std::move(why);
  }
  context_.TryCancel();
}

Status WatchReader::Take(const v1::WatchEvent& event) {
  switch (event.event_case()) {
    case v1::WatchEvent::kStarted: {
      RETURN_IF_ERROR(wire::CheckSecret(event.started().session(), "session"));
      const MutexLock lock(mutex_);
      if (started_) return Fail(ErrorCode::kMalformedBody, "the session was started twice");
      started_ = event.started();
      changed_.NotifyAll();
      return {};
    }
    case v1::WatchEvent::kRevoked: {
      ASSIGN_OR_RETURN(wire::PeerRevocation revocation, wire::FromMessage(event.revoked()));
      on_event_(std::move(revocation));
      return {};
    }
    case v1::WatchEvent::kShuttingDown:
      return Fail(ErrorCode::kPeerLost, "the peer's sidecar is shutting down");
    default:
      on_event_(PeerAlive{});
      return {};
  }
}

}  // namespace gantry::peer
