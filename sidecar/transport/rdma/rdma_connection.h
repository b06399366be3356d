// This side's ends of some queue pairs to one peer, and the work requests that are on their way
// through them. An error of one breaks them all. Made by any thread, then used by one at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "lib/base/clock.h"
#include "sidecar/transport/rdma/rdma_devices.h"
#include "sidecar/transport/rdma/rdma_operation.h"

namespace gantry::transport {

// Lets a peer make its ends of queue pairs. Owned here, implemented by the peer API; called by
// helper threads, may block up to the deadline. Thread-safe.
class QueuePairExchange {
 public:
  virtual ~QueuePairExchange() = default;
  virtual const std::vector<wire::RdmaDeviceAddress>& peer_devices() const = 0;
  virtual Result<wire::QueuePairGrant> Connect(const std::vector<wire::QueuePairRequest>& requests,
                                               TimePoint deadline) = 0;
  // The peer's ends are destroyed when this succeeds.
  virtual Status End(uint64_t connection, TimePoint deadline) = 0;
};

// Lanes between devices of different places, for buffers whose own devices do not meet at one.
struct Crossing {
  size_t device = 0;         // here
  uint32_t peer_device = 0;  // there
  auto operator<=>(const Crossing&) const = default;
};

class RdmaConnection {
 public:
  RdmaConnection(const RdmaConnection&) = delete;
  RdmaConnection& operator=(const RdmaConnection&) = delete;
  ~RdmaConnection();

  // What failed, once for a connection; what is flushed after it is its consequence.
  struct Failure {
    WorkCompletion completion;
    size_t device = 0;
    RdmaOperation* operation = nullptr;
  };

  // A work request that no lane fits: its ends have keys of other devices.
  struct Misfit {
    RdmaOperation* operation = nullptr;
    DeviceSet here;
    DeviceSet there;
  };

  // Connects to the peer, each device here with that of its place there, and by these crossings
  // besides; may block up to the deadline.
  static Result<std::unique_ptr<RdmaConnection>> Make(const RdmaDevices& devices,
                                                      const std::set<Crossing>& crossings,
                                                      QueuePairExchange& exchange,
                                                      TimePoint deadline);

  uint64_t id() const { return id_; }            // the peer's
  milliseconds lease() const { return lease_; }  // of the peer's ends
  bool is_broken() const { return broken_; }
  // It has queue pairs on the devices whose ports are active now, and on no other, and what
  // crosses between these.
  bool UsesAllOf(const RdmaDevices& devices, const std::set<Crossing>& crossings) const;
  size_t in_flight() const { return in_flight_; }

  // Posts up to `most` of the operation's work requests, as far as there is room. True: any.
  bool Post(RdmaOperation& operation, size_t most, TimePoint now);
  // Has what the operation wrote through this flushed, as soon as there is room.
  void PostFlushes(RdmaOperation& operation);
  // Takes completions; true when there were any. `failure`: the first.
  bool Poll(std::optional<Failure>* failure);
  // What broke it, where that is no work request's failure; once.
  std::optional<Error> TakeReason() { return std::exchange(reason_, std::nullopt); }
  // What kept Post from posting, where that is no want of room; once.
  std::optional<Misfit> TakeMisfit() { return std::exchange(misfit_, std::nullopt); }
  // Completions make the queues' descriptors readable from now on.
  Status Arm();
  std::vector<VerbsCompletionQueue*> queues();
  // Everything in flight comes back as flushed.
  void Break();
  // Without waiting for that: what is in flight is lost, and may be on its way to the peer.
  void Drop();

 private:
  struct Lane {
    size_t device = 0;  // here
    std::string device_name;
    NicCounters* counters = nullptr;  // its
    uint32_t peer_device = 0;         // there
    VerbsCompletionQueue* queue = nullptr;
    std::unique_ptr<VerbsQueuePair> pair;
    QueuePairAddress address;
    QueuePairAddress peer;
    uint32_t flush_key = 0;  // of flushed_ on this device
    size_t room = 0;
    uint64_t bytes = 0;                // in flight
    uint64_t first_id = 0;             // of sent.front()
    std::deque<NumberedWork> sent;     // in their order, each with the id of its place
    std::vector<NumberedWork> staged;  // about to be posted
  };

  RdmaConnection() = default;

  Status MakeLanes(const RdmaDevices& devices, const std::set<Crossing>& crossings,
                   size_t peer_devices);
  // With the peer's ends, in the order of the lanes.
  Status Join(const RdmaDevices& devices, const std::vector<wire::QueuePairAddress>& ends);
  // Of those that have keys of both ends; null: none has room. `fits`: some lane has the keys.
  Lane* Roomiest(DeviceSet here, DeviceSet there, bool* fits);
  void Send(Lane* lane);
  WorkItem ItemOf(const Lane& lane, const NumberedWork& work, uint64_t id, bool signalled) const;
  void Complete(const VerbsCompletionQueue* queue, const WorkCompletion& completion,
                std::optional<Failure>* failure);

  uint64_t id_ = 0;
  milliseconds lease_{0};
  bool broken_ = false;
  bool failed_ = false;
  std::optional<Error> reason_;
  std::optional<Misfit> misfit_;
  size_t in_flight_ = 0;
  std::vector<std::unique_ptr<VerbsCompletionQueue>> queues_;  // outlive the lanes' pairs
  std::vector<Lane> lanes_;
  std::vector<WorkItem> items_;  // scratch of Send
  uint64_t flushed_ = 0;         // where the answers to flushes arrive; nobody reads it
  std::vector<std::unique_ptr<VerbsRegion>> flush_regions_;  // of it, on each device
};

}  // namespace gantry::transport
