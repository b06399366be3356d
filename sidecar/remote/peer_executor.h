// Transfers that a peer moves at this sidecar's request. Owned here, implemented by peer/.
// Thread-safe.
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
  // Hears of one execution. Called by threads of the executor, in this order; must not block.
  class Watcher {
   public:
    virtual ~Watcher() = default;
    // The path that the peer takes, and what it says of the others, fastest first.
    virtual void OnAccepted(wire::Path path, std::vector<wire::PathReport> paths) = 0;
    virtual void OnProgress(uint64_t bytes) = 0;  // moved for certain
    // Once, last: no byte of it moves any more, whatever became of the peer.
    virtual void OnEnded(const wire::PeerExecutionEnd& end) = 0;
  };
  class Execution {
   public:
    virtual ~Execution() = default;
    // Asks the peer to end it. Never blocks; OnEnded comes when it is quiet. A peer that does not
    // say so in time loses the access that it has to memory of this sidecar.
    virtual void Stop() = 0;
  };

  virtual ~PeerExecutor() = default;
  // The peer takes executions, and has a session with this sidecar: else why not, and what to do.
  virtual Status CanExecute(const std::string& peer) const = 0;
  // Never blocks. Of those that wait the higher priority goes first. `make` is called once, when
  // its turn has come, by a thread of the executor; id, proofs and time are filled in there.
  virtual std::unique_ptr<Execution> Execute(const std::string& peer, int priority,
                                             std::function<wire::PeerExecution()> make,
                                             TimePoint deadline,
                                             std::shared_ptr<Watcher> watcher) = 0;
};

}  // namespace gantry::engine
