// The initiator's end of a Watch call: a thread of its own reads events until the stream ends.
// Thread-safe; must not be destroyed on its own thread.
#pragma once

#include <grpcpp/client_context.h>

#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "lib/base/clock.h"
#include "lib/base/mutex.h"
#include "lib/base/result.h"
#include "lib/wire/peer.grpc.pb.h"
#include "sidecar/peer/client/peer_client.h"

namespace gantry::peer {

class WatchReader {
 public:
  explicit WatchReader(PeerClient::EventHandler on_event) : on_event_(std::move(on_event)) {}
  WatchReader(const WatchReader&) = delete;
  WatchReader& operator=(const WatchReader&) = delete;
  ~WatchReader();

  // Call once. The stub outlives the reader. `authorization` as in PeerChannel. kResourceExhausted:
  // the thread could not be created, and no call was made.
  Status Start(v1::Peer::Stub& stub, v1::WatchRequest request, const std::string& authorization);
  Result<v1::Started> AwaitStarted(TimePoint deadline) EXCLUDES(mutex_);
  void Cancel(Error why) EXCLUDES(mutex_);

 private:
  void Read(v1::Peer::Stub& stub, const v1::WatchRequest& request) EXCLUDES(mutex_);
  Status Take(const v1::WatchEvent& event) EXCLUDES(mutex_);

  const PeerClient::EventHandler on_event_;
  grpc::ClientContext context_;

  Mutex mutex_;
  Condition changed_;
  std::optional<v1::Started> started_ GUARDED_BY(mutex_);
  std::optional<Error> why_ GUARDED_BY(mutex_);  // it has ended, or has to

  std::jthread thread_;
};

}  // namespace gantry::peer
