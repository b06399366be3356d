// Executes transfers at a peer's request. They move bytes between local buffers that the peer may
// use and the peer's own buffers that any local workload may use. The engine checks them like all
// others. Thread-safe; Execute and End block.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "lib/base/clock.h"
#include "lib/base/mutex.h"
#include "lib/base/result.h"
#include "lib/wire/peer_execution.h"
#include "sidecar/peer/identity/peer_rules.h"
#include "sidecar/peer/link/peer_directory.h"
#include "sidecar/registry/buffer_registry.h"
#include "sidecar/transfer/transfer_engine.h"

namespace gantry::peer {

class ExecutionServer {
 public:
  // Both references outlive it. Each running execution occupies a thread of the peer API.
  ExecutionServer(engine::TransferEngine& engine, const registry::BufferRegistry& registry,
                  size_t running_max = 32, size_t running_per_session_max = 16);

  // `peers` outlives every execution; Close waits for those. Until it is set all executions are
  // refused.
  void SetPeers(const PeerDirectory* peers) EXCLUDES(mutex_);

  struct Caller {
    std::string session;
    std::string name;  // as it calls itself
    PeerGrant grant;
    std::function<bool()> gone;     // the call was cancelled
    std::function<void()> hang_up;  // ends status writes that the peer does not read
    // Called when accepted, then with progress.
    std::function<void(const engine::TransferStatus& status)> on_status;
  };
  // Returns when no byte can move any more. Stops the transfer when the caller is gone.
  wire::PeerExecutionEnd Execute(const Caller& caller, wire::PeerExecution what) EXCLUDES(mutex_);
  // Stops the execution and waits until it is quiet. Returns "pending" when that takes longer: call
  // again. An unknown or not yet admitted execution will not begin. Works also for an ended
  // session.
  Result<wire::PeerExecutionEnd> End(const std::string& session, const std::string& id)
      EXCLUDES(mutex_);
  // Stops the session's executions; returns at once.
  void EndSession(const std::string& session) EXCLUDES(mutex_);
  // Refuses new executions, stops running ones and waits until they are quiet. Idempotent.
  void Close() EXCLUDES(mutex_);

 private:
  using Key = std::pair<std::string, std::string>;  // session, id
  struct Entry {
    bool stop = false;
    bool begun = false;              // it may move bytes
    const Caller* caller = nullptr;  // set while it runs
    std::optional<wire::PeerExecutionEnd> end;
  };

  // Fails when it may not begin.
  Status Enter(const Key& key, const Caller& caller) EXCLUDES(mutex_);
  void Leave(const Key& key, const wire::PeerExecutionEnd& end) EXCLUDES(mutex_);
  wire::PeerExecutionEnd Run(const Key& key, const Caller& caller, wire::PeerExecution* what)
      EXCLUDES(mutex_);
  // Consumes the ranges in `what`.
  Result<wire::TransferRequest> RequestOf(const Caller& caller, wire::PeerExecution* what)
      EXCLUDES(mutex_);
  // Returns the peer whose session with this sidecar the caller has proved.
  Result<std::string> ProvenPeer(const Caller& caller, const wire::PeerExecution& what) const
      EXCLUDES(mutex_);
  // The last check before the engine takes it. Fails when it was stopped.
  Status Begin(const Key& key) EXCLUDES(mutex_);
  bool Stopped(const Key& key) const EXCLUDES(mutex_);
  // Returns the session's running and its remembered executions.
  std::pair<size_t, size_t> CountOf(const std::string& session) const REQUIRES(mutex_);
  void ForgetOld() REQUIRES(mutex_);

  engine::TransferEngine& engine_;
  const registry::BufferRegistry& registry_;
  const size_t running_max_;
  const size_t running_per_session_max_;

  mutable Mutex mutex_;
  Condition changed_;
  const PeerDirectory* peers_ GUARDED_BY(mutex_) = nullptr;
  std::map<Key, Entry> entries_ GUARDED_BY(mutex_);
  // End times. Ended executions are kept for a while, for peers that missed the result.
  std::deque<std::pair<TimePoint, Key>> ended_ GUARDED_BY(mutex_);
  size_t running_ GUARDED_BY(mutex_) = 0;
  bool closed_ GUARDED_BY(mutex_) = false;
};

}  // namespace gantry::peer
