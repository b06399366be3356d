// One initiator's Watch call on the owner's side: events queue up here, and the call's own thread
// sends them. Thread-safe; the call outlives its use by the initiator table.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/sync_stream.h>

#include <deque>

#include "lib/base/mutex.h"
#include "lib/wire/peer.grpc.pb.h"
#include "sidecar/peer/server/initiator_table.h"

namespace gantry::peer {

class WatchStream final : public InitiatorStream {
 public:
  WatchStream(grpc::ServerContext& context, grpc::ServerWriter<v1::WatchEvent>& writer)
      : context_(context), writer_(writer) {}

  void Push(v1::WatchEvent event) EXCLUDES(mutex_);
  // Sends until the initiator is gone or End was called. Returns the call's status.
  grpc::Status Run() EXCLUDES(mutex_);

  void PushRevocation(const wire::PeerRevocation& revocation) override;
  void PushHeartbeat() override;
  void PushShutdown(milliseconds deadline) override;
  void End() override EXCLUDES(mutex_);

 private:
  // Returns the next event; false when none will come, or the initiator is gone.
  bool Await(v1::WatchEvent* event) EXCLUDES(mutex_);

  grpc::ServerContext& context_;
  grpc::ServerWriter<v1::WatchEvent>& writer_;

  Mutex mutex_;
  Condition pushed_;
  std::deque<v1::WatchEvent> queue_ GUARDED_BY(mutex_);
  bool ending_ GUARDED_BY(mutex_) = false;
};

}  // namespace gantry::peer
