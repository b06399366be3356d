// The initiator's side of one session with one owner. It is opened once, used until it ends, and
// never repaired. Thread-safe, but only one FetchDescriptors call may run at a time.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "lib/base/clock.h"
#include "lib/base/result.h"
#include "lib/base/unique_fd.h"
#include "lib/wire/hold.h"
#include "lib/wire/notification.h"
#include "lib/wire/peer_descriptor.h"
#include "lib/wire/peer_version.h"
#include "lib/wire/session_times.h"
#include "lib/wire/stage_types.h"
#include "lib/wire/transfer_request.h"
#include "sidecar/peer/client/call_canceller.h"
#include "sidecar/peer/client/peer_channel.h"
#include "sidecar/peer/identity/peer_address.h"
#include "sidecar/peer/identity/peer_identity.h"
#include "sidecar/remote/peer_executor.h"

namespace gantry::peer {

struct PeerAlive {};
struct PeerEnded {
  Error why;
};
using PeerEvent = std::variant<PeerAlive, wire::PeerRevocation, PeerEnded>;

class PeerClient {
 public:
  struct Options {
    PeerIdentity self;
    PeerChannelOptions channel;
    milliseconds call_timeout{5'000};
    wire::PeerVersions versions = wire::kPeerVersions;
  };
  struct Facts {
    PeerIdentity owner;
    std::vector<wire::PathReport> paths;
    uint64_t rtt_us = 0;
    milliseconds heartbeat = wire::kHeartbeat;
    bool executes = false;  // the owner accepts executions
    // The longest time that the owner's executions need to become quiet after their deadline.
    // Nothing: unknown.
    std::optional<milliseconds> quiesce_max;
    // UUIDs of the GPUs that the owner sees; unknown over TCP.
    std::shared_ptr<const std::vector<std::string>> gpus;
    std::string verified_identity;  // the owner's verified identity: see VerifiedIdentity
    std::vector<wire::RdmaDeviceAddress> rdma_devices;  // the owner's
  };
  // Called on a thread of the client: must not block, and must not destroy the client. PeerEnded
  // comes once, as the last event.
  using EventHandler = std::function<void(const PeerEvent& event)>;

  static std::unique_ptr<PeerClient> Make(Options options, PeerAddress address,
                                          EventHandler on_event);
  virtual ~PeerClient() = default;  // ends the stream; no event follows

  // Call once, before anything but Break. Connects, sends Hello, starts Watch, and opens the lease
  // connection of a peer in the node directory.
  virtual Status Open(TimePoint deadline) = 0;

  virtual const Facts& facts() const = 0;
  // Keep a reference while any of the peer's memory is mapped, and release it after unmapping. Its
  // end proves to the owner that nothing is mapped any more. Null over TCP, where nothing is
  // mapped.
  virtual std::shared_ptr<const UniqueFd> lease() const = 0;

  // Returns one result per reference, checked against the request.
  virtual Result<std::vector<Result<wire::PeerBuffer>>> Describe(
      const std::vector<wire::BufferReference>& references, TimePoint deadline) = 0;
  // Returned in the order of `wanted`. A failure of the lease connection itself ends the session.
  virtual Result<std::vector<UniqueFd>> FetchDescriptors(
      const std::vector<wire::WantedAllocation>& wanted, TimePoint deadline) = 0;
  // Returns tickets for data connections, at most `count`.
  virtual Result<wire::PeerStreams> OpenStreams(size_t count, TimePoint deadline) = 0;
  // Connects the owner's ends of queue pairs. They are destroyed when EndQueuePairs succeeds.
  virtual Result<wire::QueuePairGrant> ConnectQueuePairs(
      const std::vector<wire::QueuePairRequest>& requests, TimePoint deadline) = 0;
  virtual Status EndQueuePairs(uint64_t connection, TimePoint deadline) = 0;
  // Borrows staging memory of the owner, at most `slices` slices. It is returned when CloseStage
  // succeeds.
  virtual Result<wire::StageGrant> OpenStage(uint32_t slices, TimePoint deadline) = 0;
  virtual Status CloseStage(uint64_t stage, TimePoint deadline) = 0;
  // Asks the owner to copy staged bytes. Returns the owner's error, or nothing if it copied them. A
  // failed call leaves the outcome unknown.
  virtual Result<std::optional<Error>> CopyStaged(const wire::StagedMove& move,
                                                  TimePoint deadline) = 0;
  virtual Status Acknowledge(const std::vector<uint64_t>& revocations, TimePoint deadline) = 0;
  // Success means that the receiver has the notification. The deadline limits the call only.
  virtual Status Notify(const wire::Notification& notification, TimePoint deadline) = 0;
  // Returns the number of the use, for EndHoldUses.
  virtual Result<uint64_t> UseHold(const wire::HoldUse& use, TimePoint deadline) = 0;
  // Delivers the first `ends`, as many as the owner takes at once. Returns their number.
  virtual Result<size_t> EndHoldUses(std::span<const wire::HoldUseEnd> ends,
                                     TimePoint deadline) = 0;
  // Lets the owner move the bytes. Returns the outcome once no byte can move any more. A failed
  // call leaves the outcome unknown; EndExecution may tell it. `stop` ends the call, not the
  // transfer.
  virtual Result<wire::PeerExecutionEnd> Execute(const wire::PeerExecution& what,
                                                 TimePoint deadline, CallCanceller& stop,
                                                 engine::PeerExecutor::Watcher& watcher) = 0;
  virtual Result<wire::PeerExecutionEnd> EndExecution(const std::string& id,
                                                      TimePoint deadline) = 0;
  // Proves to the owner, in its own session with this sidecar, that this session exists.
  virtual std::string Proof() const = 0;
  // Fails current and future calls of Describe, FetchDescriptors and Notify. The session stays.
  virtual void StopFetching() = 0;
  virtual void Break() = 0;  // ends the session and its calls soon; any thread
};

}  // namespace gantry::peer
