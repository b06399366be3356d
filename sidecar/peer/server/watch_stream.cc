#include "sidecar/peer/server/watch_stream.h"

#include <utility>

namespace gantry::peer {
namespace {

// An initiator that leaves so many unread is told to begin again: it unmaps everything then.
constexpr size_t kEventsQueuedMax = 131'072;
// Nothing wakes a call whose initiator cancelled it, but what is pushed: heartbeats, and whatever
// its buffers' owner wants of it. One whose process ended is woken by its lease.
constexpr milliseconds kCancelPoll{1'000};

}  // namespace

void WatchStream::Push(v1::WatchEvent event) {
  const MutexLock lock(mutex_);
  if (ending_) return;
  if (queue_.size() >= kEventsQueuedMax) {
    ending_ = true;
    context_.TryCancel();
  } else {
    queue_.push_back(std::move(event));
  }
  pushed_.NotifyOne();
}

grpc::Status WatchStream::Run() {
  v1::WatchEvent event;
  while (Await(&event)) {
    if (!writer_.Write(event)) return grpc::Status::CANCELLED;
  }
  return context_.IsCancelled() ? grpc::Status::CANCELLED : grpc::Status::OK;
}

bool WatchStream::Await(v1::WatchEvent* event) {
  MutexLock lock(mutex_);
  while (queue_.empty()) {
    if (ending_ || context_.IsCancelled()) return false;
    pushed_.WaitUntil(lock, Clock::now() + kCancelPoll);
  }
  *event = std::move(queue_.front());
  queue_.pop_front();
  return true;
}

void WatchStream::End() {
  const MutexLock lock(mutex_);
  ending_ = true;
  pushed_.NotifyOne();
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
  End();
}

}  // namespace gantry::peer
