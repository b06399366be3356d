#include "sidecar/peer/watch_stream.h"

#include <utility>

#include "sidecar/peer/grpc_status.h"

namespace gantry::peer {
namespace {

// An initiator that leaves so many unread is told to begin again: it unmaps everything then.
constexpr size_t kEventsQueuedMax = 131'072;

}  // namespace

void WatchStream::Push(v1::WatchEvent event) {
  const MutexLock lock(mutex_);
  if (ending_) return;
  if (queue_.size() >= kEventsQueuedMax) {
    ending_ = true;
    queue_.resize(writing_ ? 1 : 0);
    status_ = ToGrpcStatus(Error(ErrorCode::kResourceExhausted, "the events were not read"));
  } else {
    queue_.push_back(std::move(event));
  }
  Advance();
}

void WatchStream::End(const grpc::Status& status) {
  const MutexLock lock(mutex_);
  if (ending_) return;
  ending_ = true;
  status_ = status;
  Advance();
}

void WatchStream::PushRevocation(const wire::PeerRevocation& revocation) {
  v1::WatchEvent event;
  v1::Revoked& revoked = *event.mutable_revoked();
  revoked.set_revocation(revocation.id);
  revoked.set_buffer_id(revocation.buffer_id);
  revoked.set_buffer_generation(revocation.buffer_generation);
  revoked.set_grace_ms(revocation.grace_ms);
  revoked.set_deadline_ms(revocation.deadline_ms);
  revoked.set_suspended(revocation.suspended);
  Push(std::move(event));
}

void WatchStream::PushHeartbeat() {
  {
    const MutexLock lock(mutex_);
    if (!queue_.empty()) return;  // what is queued says the same
  }
  v1::WatchEvent event;
  event.mutable_heartbeat();
  Push(std::move(event));
}

void WatchStream::PushShutdown(milliseconds deadline) {
  v1::WatchEvent event;
  event.mutable_shutting_down()->set_deadline_ms(static_cast<uint32_t>(deadline.count()));
  Push(std::move(event));
  End(grpc::Status::OK);
}

void WatchStream::OnWriteDone(bool ok) {
  const MutexLock lock(mutex_);
  writing_ = false;
  queue_.pop_front();
  if (!ok) {
    ending_ = true;
    queue_.clear();
  }
  Advance();
}

void WatchStream::OnCancel() {
  const MutexLock lock(mutex_);
  if (!ending_) status_ = grpc::Status::CANCELLED;
  ending_ = true;
  queue_.resize(writing_ ? 1 : 0);
  Advance();
}

void WatchStream::OnDone() {
  on_end_();
  {
    const MutexLock lock(mutex_);  // whoever called Finish has let go of it
  }
  delete this;
}

void WatchStream::Advance() {
  if (writing_ || finished_) return;
  if (!queue_.empty()) {
    writing_ = true;
    StartWrite(&queue_.front());
  } else if (ending_) {
    finished_ = true;
    Finish(status_);
  }
}

}  // namespace gantry::peer
