// Transfers that this sidecar moves because a peer asked for it: between buffers that the peer may
// use here and buffers of the peer that anybody here may use. The engine checks them as any other.
// Thread-safe; Execute and End block.
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
#include "sidecar/peer/client/peer_directory.h"
#include "sidecar/peer/identity/peer_rules.h"
#include "sidecar/registry/buffer_registry.h"
#include "sidecar/transfer/transfer_engine.h"

namespace gantry::peer {

class ExecutionDesk {
 public:
  // Both outlive it. Each has a thread of the peer API.
  ExecutionDesk(engine::TransferEngine& engine, const registry::BufferRegistry& registry,
                size_t running_max = 32, size_t running_per_session_max = 16);

  // Outlive every execution, which Close waits for. Before it is set all of them are refused.
  void SetPeers(const PeerDirectory* peers) EXCLUDES(mutex_);

  struct Caller {
    std::string session;
    std::string name;  // as it says
    PeerGrant grant;
    std::function<bool()> gone;     // nobody listens any more
    std::function<void()> hang_up;  // ends a telling that nobody takes
    // Accepted, then progress.
    std::function<void(const engine::TransferStatus& status)> on_status;
  };
  // Returns when no byte of it moves any more. One that nobody listens to is stopped.
  wire::PeerExecutionEnd Execute(const Caller& caller, wire::PeerExecution what) EXCLUDES(mutex_);
  // Stops it and waits until it is quiet; pending when that takes longer: ask again. One that is
  // not known, or waits to be admitted, does not begin any more. Also of a session that is over.
  Result<wire::PeerExecutionEnd> End(const std::string& session, const std::string& id)
      EXCLUDES(mutex_);
  // Stops what the session asked for; returns at once.
  void EndSession(const std::string& session) EXCLUDES(mutex_);
  // Takes no more, stops those that run, and returns when they are quiet. Idempotent.
  void Close() EXCLUDES(mutex_);

 private:
  using Key = std::pair<std::string, std::string>;  // session, id
  struct Entry {
    bool stop = false;
    bool begun = false;              // it may move bytes
    const Caller* caller = nullptr;  // while it runs
    std::optional<wire::PeerExecutionEnd> end;
  };

  // Fails when it may not begin.
  Status Enter(const Key& key, const Caller& caller) EXCLUDES(mutex_);
  void Leave(const Key& key, const wire::PeerExecutionEnd& end) EXCLUDES(mutex_);
  wire::PeerExecutionEnd Run(const Key& key, const Caller& caller, wire::PeerExecution* what)
      EXCLUDES(mutex_);
  // Takes the ranges.
  Result<wire::TransferRequest> RequestOf(const Caller& caller, wire::PeerExecution* what)
      EXCLUDES(mutex_);
  // The peer with whom this sidecar has the session that the caller knows the secret of.
  Result<std::string> ProvenPeer(const Caller& caller, const wire::PeerExecution& what) const
      EXCLUDES(mutex_);
  // Its last step before the engine has it. Fails when it was stopped.
  Status Begin(const Key& key) EXCLUDES(mutex_);
  bool Stopped(const Key& key) const EXCLUDES(mutex_);
  // Of the session: those that run, and those that are remembered.
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
  // When they ended: they are remembered for a while, for those who did not hear it.
  std::deque<std::pair<TimePoint, Key>> ended_ GUARDED_BY(mutex_);
  size_t running_ GUARDED_BY(mutex_) = 0;
  bool closed_ GUARDED_BY(mutex_) = false;
};

}  // namespace gantry::peer
