// This side's ends of some queue pairs to one peer, and their work requests in flight. An error of
// one breaks the whole connection. Helper threads create and take it down. Between these, one
// thread at a time uses it.
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

// Asks a peer to create its ends of queue pairs. This folder owns the interface; the peer API
// implements it. Called on helper threads; may block until the deadline. Thread-safe.
class QueuePairExchange {
 public:
  virtual ~QueuePairExchange() = default;
  virtual const std::vector<wire::RdmaDeviceAddress>& peer_devices() const = 0;
  virtual Result<wire::QueuePairGrant> Connect(const std::vector<wire::QueuePairRequest>& requests,
                                               TimePoint deadline) = 0;
  // The peer's ends are destroyed when this succeeds.
  virtual Status End(uint64_t connection, TimePoint deadline) = 0;
};

// A local device and a peer's device with queue pairs to each other.
struct RdmaLink {
  size_t device = 0;         // local
  uint32_t peer_device = 0;  // the peer's
  auto operator<=>(const RdmaLink&) const = default;
};

class RdmaConnection {
 public:
  RdmaConnection(const RdmaConnection&) = delete;
  RdmaConnection& operator=(const RdmaConnection&) = delete;
  ~RdmaConnection();

  // The first failed work request of the connection; flushed ones are its consequence.
  struct Failure {
    WorkCompletion completion;
    size_t device = 0;
    RdmaOperation* operation = nullptr;
  };

  // A work request that fits no lane: its memory is registered on other devices.
  struct Misfit {
    DeviceSet here;
    DeviceSet there;
  };

  // Connects over the links whose local port is active. May block until the deadline.
  static Result<std::unique_ptr<RdmaConnection>> Make(const RdmaDevices& devices,
                                                      const std::vector<RdmaLink>& links,
                                                      QueuePairExchange& exchange,
                                                      TimePoint deadline);

  uint64_t id() const { return id_; }            // assigned by the peer
  milliseconds lease() const { return lease_; }  // lease of the peer's ends
  bool is_broken() const { return broken_; }
  bool has_moved() const { return moved_; }  // at least one work request has completed
  // True when it has queue pairs on the link.
  bool Uses(const RdmaLink& link) const;
  DeviceSet devices() const;  // local devices
  // Returns its first device whose port is down; empty: none.
  std::string DownOf(const RdmaDevices& devices) const;
  // Links that failed during Make, here or at the peer; the connection works without them.
  const std::map<RdmaLink, Error>& left_out() const { return left_out_; }
  size_t in_flight() const { return in_flight_; }

  // Posts up to `most` work requests of the operation, as far as there is room. Each goes to a lane
  // with keys for both of its ends. Returns true when any was posted.
  bool Post(RdmaOperation& operation, size_t most, TimePoint now);
  // Posts reads that flush the operation's writes on each lane, as far as there is room.
  void PostFlushes(RdmaOperation& operation);
  // Takes completions; returns true when there were any. `failure` receives the first failure.
  bool Poll(std::optional<Failure>* failure);
  // Returns once why it broke without a failed work request.
  std::optional<Error> TakeReason() { return std::exchange(reason_, std::nullopt); }
  // Returns once why the last Post stopped, if not for lack of room.
  std::optional<Misfit> TakeMisfit() { return std::exchange(misfit_, std::nullopt); }
  // The next completions make the queues' descriptors readable.
  Status Arm();
  std::vector<VerbsCompletionQueue*> queues();
  // Posts nothing any more; TakeDown must follow.
  void Break() { broken_ = true; }
  void Break(Error why);
  // Waits at most `flush` for work in flight to come back as flushed. After the return no byte of
  // it moves here. It may block for ever on a broken device, so run it on a dedicated thread.
  void TakeDown(milliseconds flush);
  // Call after TakeDown: completes the operations' work in flight. Lost work may still be on its
  // way to the peer.
  void CompleteInFlight(std::optional<Failure>* failure);

 private:
  struct Lane {
    RdmaLink link;
    std::string device_name;               // local
    NicCounters* counters = nullptr;       // the device's
    std::unique_ptr<VerbsQueuePair> pair;  // null after TakeDown
    GidEntry gid;                          // local
    QueuePairAddress address;
    QueuePairAddress peer;
    uint32_t flush_key = 0;     // key of flushed_ on this device
    uint32_t inline_bytes = 0;  // longest inline write
    size_t room = 0;
    uint64_t bytes = 0;                // in flight
    uint64_t first_id = 0;             // id of sent.front()
    uint64_t ended_id = 0;             // TakeDown: earlier ids have ended
    std::deque<NumberedWork> sent;     // in order; the id of each is its position
    std::vector<NumberedWork> staged;  // about to be posted
  };

  // The resources of a link besides its queue pairs.
  struct Part {
    RdmaLink link;
    std::unique_ptr<VerbsCompletionQueue> queue;
    std::unique_ptr<VerbsRegion> flushed;  // registration of flushed_
  };

  RdmaConnection() = default;

  using PeerDevices = std::vector<wire::RdmaDeviceAddress>;
  // Makes lanes on all links that work; fails if none does.
  Status MakeLanes(const RdmaDevices& devices, const PeerDevices& peers,
                   const std::vector<RdmaLink>& links);
  Status MakeLanesOn(const RdmaLink& link, const RdmaDevices& devices, const PeerDevices& peers);
  // Connects the lanes to the peer's ends, which are in their order. Fails if none works.
  Status Connect(const RdmaDevices& devices, const PeerDevices& peers,
                 const std::vector<wire::QueuePairAddress>& ends);
  void LeaveOut(const RdmaLink& link, Error why);
  Status CheckAny() const;
  // Returns the least loaded lane with room and keys for both ends; null: none has room. *fits is
  // set when some lane has the keys.
  Lane* Roomiest(DeviceSet here, DeviceSet there, bool* fits);
  void Send(Lane* lane);
  WorkItem ItemOf(const Lane& lane, const NumberedWork& work, uint64_t id, bool signalled) const;
  void Complete(size_t device, const WorkCompletion& completion, std::optional<Failure>* failure);
  // Appends completions to ended_. False: no more will come.
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
  uint64_t flushed_ = 0;     // target of flush reads; its value is unused
  std::vector<Part> parts_;  // outlive the lanes' queue pairs
  std::vector<Lane> lanes_;
  std::vector<WorkItem> items_;  // scratch of Send
  // Filled by TakeDown, with the device index.
  std::vector<std::pair<size_t, WorkCompletion>> ended_;
};

}  // namespace gantry::transport
