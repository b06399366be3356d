#include "sidecar/peer/watch_reader.h"

#include <utility>

#include "lib/wire/peer_messages.h"
#include "sidecar/peer/grpc_status.h"

namespace gantry::peer {

WatchReader::~WatchReader() {
  context_.TryCancel();
  MutexLock lock(mutex_);
  while (running_) changed_.Wait(lock);
}

void WatchReader::Start(v1::Peer::Stub& stub, v1::WatchRequest request) {
  {
    const MutexLock lock(mutex_);
    running_ = true;
  }
  request_ = std::move(request);
  stub.async()->Watch(&context_, &request_, this);
  StartRead(&event_);
  StartCall();
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

void WatchReader::OnReadDone(bool ok) {
  if (!ok) return;
  if (Status taken = Take(event_); !taken) {
    Cancel(std::move(taken).error());
    return;
  }
  StartRead(&event_);
}

Status WatchReader::Take(const v1::WatchEvent& event) {
  switch (event.event_case()) {
    case v1::WatchEvent::kStarted: {
      RETURN_IF_ERROR(wire::CheckSecret(event.started().session(), "session"));
      RETURN_IF_ERROR(wire::CheckSecret(event.started().lease_ticket(), "lease_ticket"));
      RETURN_IF_ERROR(wire::CheckSocketName(event.started().fd_socket()));
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

void WatchReader::OnDone(const grpc::Status& status) {
  Error why(ErrorCode::kPeerLost, "the peer's sidecar ended the session");
  if (!status.ok()) why = FromGrpcStatus(status);
  {
    const MutexLock lock(mutex_);
    if (!why_) why_ = why;
    why = *why_;
  }
  on_event_(PeerEnded{std::move(why)});
  const MutexLock lock(mutex_);
  running_ = false;
  changed_.NotifyAll();
}

}  // namespace gantry::peer
