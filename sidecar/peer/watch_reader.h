// The initiator's end of a Watch call: reads events until the stream ends. Its owner destroys it
// from a thread that is not gRPC's. Thread-safe.
#pragma once

#include <grpcpp/client_context.h>
#include <grpcpp/support/client_callback.h>

#include <functional>
#include <optional>

#include "lib/base/clock.h"
#include "lib/base/mutex.h"
#include "lib/base/result.h"
#include "lib/wire/peer.grpc.pb.h"
#include "sidecar/peer/peer_client.h"

namespace gantry::peer {

class WatchReader final : public grpc::ClientReadReactor<v1::WatchEvent> {
 public:
  explicit WatchReader(PeerClient::EventHandler on_event) : on_event_(std::move(on_event)) {}
  ~WatchReader() override;

  void Start(v1::Peer::Stub& stub, v1::WatchRequest request) EXCLUDES(mutex_);
  Result<v1::Started> AwaitStarted(TimePoint deadline) EXCLUDES(mutex_);
  void Cancel(Error why) EXCLUDES(mutex_);

 private:
  void OnReadDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;
  Status Take(const v1::WatchEvent& event) EXCLUDES(mutex_);

  const PeerClient::EventHandler on_event_;
  grpc::ClientContext context_;
  v1::WatchRequest request_;
  v1::WatchEvent event_;  // of gRPC between StartRead and OnReadDone

  Mutex mutex_;
  Condition changed_;
  bool running_ GUARDED_BY(mutex_) = false;
  std::optional<v1::Started> started_ GUARDED_BY(mutex_);
  std::optional<Error> why_ GUARDED_BY(mutex_);  // it ended, or has to
};

}  // namespace gantry::peer
