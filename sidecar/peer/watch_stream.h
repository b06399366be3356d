// One initiator's Watch call on the owner's side: events queue up here and leave one at a time.
// Deletes itself when the call is over. Thread-safe.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <deque>
#include <functional>
#include <string>

#include "lib/base/mutex.h"
#include "lib/wire/peer.grpc.pb.h"
#include "sidecar/peer/initiator_table.h"

namespace gantry::peer {

class WatchStream final : public grpc::ServerWriteReactor<v1::WatchEvent>, public InitiatorStream {
 public:
  // `on_end` runs once, before the stream is deleted.
  explicit WatchStream(std::function<void()> on_end) : on_end_(std::move(on_end)) {}

  void Push(v1::WatchEvent event) EXCLUDES(mutex_);
  void End(const grpc::Status& status) EXCLUDES(mutex_);  // after what is queued

  void PushRevocation(const wire::PeerRevocation& revocation) override;
  void PushHeartbeat() override;
  void PushShutdown(milliseconds deadline) override;

 private:
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;
  // Starts the next write, or finishes; one of them at a time.
  void Advance() REQUIRES(mutex_);

  const std::function<void()> on_end_;

  Mutex mutex_;
  std::deque<v1::WatchEvent> queue_ GUARDED_BY(mutex_);  // front: being written
  bool writing_ GUARDED_BY(mutex_) = false;
  bool ending_ GUARDED_BY(mutex_) = false;
  bool finished_ GUARDED_BY(mutex_) = false;
  grpc::Status status_ GUARDED_BY(mutex_);
};

}  // namespace gantry::peer
