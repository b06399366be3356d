// The owner's ends of queue pairs, per peer session. The NIC limits them to the regions whose keys
// the peer was told; this code sees no traffic. Thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lib/base/mutex.h"
#include "lib/base/result.h"
#include "lib/wire/rdma_types.h"
#include "sidecar/transport/rdma/verbs/rdma_devices.h"

namespace gantry::transport {

class RdmaTarget {
 public:
  struct Limits {
    size_t connections_per_session_max = 4;
    size_t queue_pairs_max = 16'384;
  };

  // `devices` outlives this.
  RdmaTarget(RdmaDevices& devices, Limits limits) : devices_(devices), limits_(limits) {}

  // Creates all requested queue pairs, ready to receive, or none. With `some_may_fail` it leaves
  // out those of failing devices, if any other device works.
  Result<wire::QueuePairGrant> Connect(const std::string& session,
                                       std::span<const wire::QueuePairRequest> requests,
                                       bool some_may_fail) EXCLUDES(mutex_);
  // After the return no byte moves through them. Idempotent. The caller prevents new connections of
  // an ended session.
  void EndConnection(const std::string& session, uint64_t connection) EXCLUDES(mutex_);
  void End(const std::string& session) EXCLUDES(mutex_);

  size_t queue_pairs() const EXCLUDES(mutex_);
  size_t connections() const EXCLUDES(mutex_);  // over all sessions

 private:
  struct Ends {
    // Destroyed before `queues`, to which nothing is ever posted.
    std::vector<std::unique_ptr<VerbsCompletionQueue>> queues;
    std::vector<std::unique_ptr<VerbsQueuePair>> pairs;
  };
  using Connections = std::map<uint64_t, std::shared_ptr<Ends>>;
  using Key = std::pair<std::string, uint64_t>;  // session and connection

  // Adds the device's flush region to the address; registers it at its first use.
  Status AddFlush(uint32_t device, wire::QueuePairAddress* address) EXCLUDES(mutex_);
  Result<std::shared_ptr<Ends>> Make(std::span<const wire::QueuePairRequest> requests,
                                     bool some_may_fail,
                                     std::vector<wire::QueuePairAddress>* addresses);
  // Creates the requested queue pairs of this device, or none of them.
  Status MakeOn(uint32_t device, std::span<const wire::QueuePairRequest> requests, Ends* ends,
                std::vector<wire::QueuePairAddress>* addresses);
  void SayWhetherItWorks(uint32_t device, const Status& made) EXCLUDES(mutex_);

  RdmaDevices& devices_;
  const Limits limits_;

  // Destroys a session's connection; 0: all of its connections. Waits for another thread's Destroy
  // of the same.
  void Destroy(const std::string& session, uint64_t connection) EXCLUDES(mutex_);
  bool IsBeingDestroyed(const std::string& session, uint64_t connection) const REQUIRES(mutex_);

  mutable Mutex mutex_;
  Condition destroyed_;
  alignas(8) std::array<std::byte, 8> flushed_{};  // peers read it to flush their writes
  std::map<uint32_t, std::unique_ptr<VerbsRegion>> flush_regions_ GUARDED_BY(mutex_);
  std::map<std::string, Connections> sessions_ GUARDED_BY(mutex_);
  std::multiset<std::string> being_made_ GUARDED_BY(mutex_);  // the session of each
  std::set<uint32_t> failing_ GUARDED_BY(mutex_);             // devices whose last attempt failed
  std::set<Key> being_destroyed_ GUARDED_BY(mutex_);
  uint64_t last_connection_ GUARDED_BY(mutex_) = 0;
  size_t pairs_ GUARDED_BY(mutex_) = 0;
};

}  // namespace gantry::transport
