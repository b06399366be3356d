// This side's ends of some queue pairs to one peer, and the work requests that are on their way
// through them. An error of one breaks them all. Made and taken down by helper threads, in between
// used by one at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lib/base/clock.h"
#include "sidecar/transport/rdma/rdma_operation.h"
#include "sidecar/transport/rdma/verbs/rdma_devices.h"

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

// A device here and one of the peer, with queue pairs to one another.
struct RdmaLink {
  size_t device = 0;         // here
  uint32_t peer_device = 0;  // there
  auto operator<=>(const RdmaLink&) const = default;
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
    DeviceSet here;
    DeviceSet there;
  };

  // Connects to the peer by those of the links whose port here is active; may block up to the
  // deadline.
  static Result<std::unique_ptr<RdmaConnection>> Make(const RdmaDevices& devices,
                                                      const std::vector<RdmaLink>& links,
                                                      QueuePairExchange& exchange,
                                                      TimePoint deadline);

  uint64_t id() const { return id_; }            // the peer's
  milliseconds lease() const { return lease_; }  // of the peer's ends
  bool is_broken() const { return broken_; }
  bool has_moved() const { return moved_; }  // something
  // It has queue pairs there.
  bool Uses(const RdmaLink& link) const;
  DeviceSet devices() const;  // here
  // The first of its devices whose port is down now; empty: none.
  std::string DownOf(const RdmaDevices& devices) const;
  // Links that it does without because one call for theirs failed, here or at the peer.
  const std::map<RdmaLink, Error>& left_out() const { return left_out_; }
  size_t in_flight() const { return in_flight_; }

  // Posts up to `most` of the operation's work requests, as far as there is room, each where both
  // its ends have keys. True: any.
  bool Post(RdmaOperation& operation, size_t most, TimePoint now);
  // Has what the operation wrote through this flushed, as soon as there is room.
  void PostFlushes(RdmaOperation& operation);
  // Takes completions; true when there were any. `failure`: the first.
  bool Poll(std::optional<Failure>* failure);
  // What broke it, where that is no work request's failure; once.
  std::optional<Error> TakeReason() { return std::exchange(reason_, std::nullopt); }
  // What kept the last Post from posting more, where that is no want of room; once.
  std::optional<Misfit> TakeMisfit() { return std::exchange(misfit_, std::nullopt); }
  // Completions make the queues' descriptors readable from now on.
  Status Arm();
  std::vector<VerbsCompletionQueue*> queues();
  // Nothing more is posted: it has to be taken down.
  void Break() { broken_ = true; }
  void Break(Error why);
  // What is in flight comes back as flushed, as far as that takes no longer than `flush`; when this
  // returns, nothing of it moves here any more. Takes as long as the devices take, which may be for
  // ever, on a thread that has it for itself.
  void TakeDown(milliseconds flush);
  // After that: tells the operations what became of what was in flight. What is lost may be on its
  // way to the peer.
  void Settle(std::optional<Failure>* failure);

 private:
  struct Lane {
    RdmaLink link;
    std::string device_name;               // here
    NicCounters* counters = nullptr;       // its
    std::unique_ptr<VerbsQueuePair> pair;  // null once it is taken down
    GidEntry gid;                          // its own
    QueuePairAddress address;
    QueuePairAddress peer;
    uint32_t flush_key = 0;     // of flushed_ on this device
    uint32_t inline_bytes = 0;  // of writes that are posted inline
    size_t room = 0;
    uint64_t bytes = 0;                // in flight
    uint64_t first_id = 0;             // of sent.front()
    uint64_t ended_id = 0;             // TakeDown: those before it have ended
    std::deque<NumberedWork> sent;     // in their order, each with the id of its place
    std::vector<NumberedWork> staged;  // about to be posted
  };

  // What a link has besides its queue pairs.
  struct Part {
    RdmaLink link;
    std::unique_ptr<VerbsCompletionQueue> queue;
    std::unique_ptr<VerbsRegion> flushed;  // of flushed_
  };

  RdmaConnection() = default;

  using PeerDevices = std::vector<wire::RdmaDeviceAddress>;
  // On all links that can; fails where none does.
  Status MakeLanes(const RdmaDevices& devices, const PeerDevices& peers,
                   const std::vector<RdmaLink>& links);
  Status MakeLanesOn(const RdmaLink& link, const RdmaDevices& devices, const PeerDevices& peers);
  // With the peer's ends, in the order of the lanes. Likewise.
  Status Join(const RdmaDevices& devices, const PeerDevices& peers,
              const std::vector<wire::QueuePairAddress>& ends);
  void LeaveOut(const RdmaLink& link, Error why);
  Status CheckAny() const;
  // Of those that have keys of both ends; null: none has room. `fits`: some lane has the keys.
  Lane* Roomiest(DeviceSet here, DeviceSet there, bool* fits);
  void Send(Lane* lane);
  WorkItem ItemOf(const Lane& lane, const NumberedWork& work, uint64_t id, bool signalled) const;
  void Complete(size_t device, const WorkCompletion& completion, std::optional<Failure>* failure);
  // Into ended_. False: nothing more will come.
  bool TakeEnded();
  Lane* LaneOf(size_t device, uint32_t number);

  std::map<RdmaLink, Error> left_out_;
  uint64_t id_ = 0;
  milliseconds lease_{0};
  bool broken_ = false;
  bool failed_ = false;
  bool moved_ = false;
  std::optional<Error> reason_;
  std::optional<Misfit> misfit_;
  size_t in_flight_ = 0;
  uint64_t flushed_ = 0;     // where the answers to flushes arrive; nobody reads it
  std::vector<Part> parts_;  // outlive the lanes' pairs
  std::vector<Lane> lanes_;
  std::vector<WorkItem> items_;                           // scratch of Send
  std::vector<std::pair<size_t, WorkCompletion>> ended_;  // TakeDown: of which device
};

}  // namespace gantry::transport
