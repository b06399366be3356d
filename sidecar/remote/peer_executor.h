// Lets a peer move bytes at this sidecar's request. This folder owns the interface; peer/
// implements it. Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lib/base/clock.h"
#include "lib/base/result.h"
#include "lib/wire/peer_execution.h"

namespace gantry::engine {

class PeerExecutor {
 public:
  // Observes one execution. Called on threads of the executor, in this order; must not block.
  class Watcher {
   public:
    virtual ~Watcher() = default;
    // The path that the peer takes, and its reports on all paths, fastest first.
    virtual void OnAccepted(wire::Path path, std::vector<wire::PathReport> paths) = 0;
    virtual void OnProgress(uint64_t bytes) = 0;  // confirmed as moved
    // Called once, last: no byte can move any more, whatever happened to the peer.
    virtual void OnEnded(const wire::PeerExecutionEnd& end) = 0;
  };
  class Execution {
   public:
    virtual ~Execution() = default;
    // Asks the peer to end it. Never blocks; OnEnded follows when it is quiet. A peer that does not
    // confirm in time loses its access to this sidecar's memory.
    virtual void Stop() = 0;
  };

  virtual ~PeerExecutor() = default;
  // Fails unless the peer accepts executions and has a session with this sidecar. The error says
  // what to do.
  virtual Status CanExecute(const std::string& peer) const = 0;
  // Never blocks. Higher priority goes first among waiting executions. `make` runs once, on a
  // thread of the executor, when its turn comes. The executor fills in id, proofs and time.
  virtual std::unique_ptr<Execution> Execute(const std::string& peer, int priority,
                                             std::function<wire::PeerExecution()> make,
                                             TimePoint deadline,
                                             std::shared_ptr<Watcher> watcher) = 0;
};

}  // namespace gantry::engine
