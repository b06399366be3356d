// The initiator's side of one session with one owner: opened once, used until it ends, never
// repaired. Calls may come from any thread; FetchDescriptors from one at a time.
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
    milliseconds heartbeat{1'000};
    bool executes = false;  // the owner takes executions
    // What it needs at most to be quiet after their deadline; nothing: it does not say.
    std::optional<milliseconds> quiesce_max;
    // UUIDs of the GPUs that the owner sees; not said over TCP.
    std::shared_ptr<const std::vector<std::string>> gpus;
    std::string shown;  // who the owner showed to be: see ShownIdentity
    std::vector<wire::RdmaDeviceAddress> rdma_devices;  // of the owner
  };
  // Called by a thread of the client: must not block, nor destroy it. PeerEnded comes once, last.
  using EventHandler = std::function<void(const PeerEvent& event)>;

  static std::unique_ptr<PeerClient> Make(Options options, PeerAddress address,
                                          EventHandler on_event);
  virtual ~PeerClient() = default;  // ends the stream; no event comes afterwards

  // Once, before anything but Break: connects, says Hello, watches, and opens the lease connection
  // of a peer in the node's directory.
  virtual Status Open(TimePoint deadline) = 0;

  virtual const Facts& facts() const = 0;
  // Whoever maps the peer's memory holds it and lets go of it after unmapping: the owner takes its
  // end as the proof that nothing is mapped any more. Null over TCP, where nothing is ever mapped.
  virtual std::shared_ptr<const UniqueFd> lease() const = 0;

  // One answer per reference, checked against what was asked for.
  virtual Result<std::vector<Result<wire::PeerBuffer>>> Describe(
      const std::vector<wire::BufferReference>& references, TimePoint deadline) = 0;
  // In the order of `wanted`. A failure of the lease connection itself ends the session.
  virtual Result<std::vector<UniqueFd>> FetchDescriptors(
      const std::vector<wire::WantedAllocation>& wanted, TimePoint deadline) = 0;
  // Tickets for data connections, `count` at most.
  virtual Result<wire::PeerStreams> OpenStreams(size_t count, TimePoint deadline) = 0;
  // The owner's ends of queue pairs. They are gone when End succeeds.
  virtual Result<wire::QueuePairGrant> ConnectQueuePairs(
      const std::vector<wire::QueuePairRequest>& requests, TimePoint deadline) = 0;
  virtual Status EndQueuePairs(uint64_t connection, TimePoint deadline) = 0;
  // Staging memory of the owner, so many slices at most. It is gone when CloseStage succeeds.
  virtual Result<wire::StageGrant> OpenStage(uint32_t slices, TimePoint deadline) = 0;
  virtual Status CloseStage(uint64_t stage, TimePoint deadline) = 0;
  // What the owner says became of it, nothing: the bytes were copied. A failure says nothing of
  // that.
  virtual Result<std::optional<Error>> CopyStaged(const wire::StagedMove& move,
                                                  TimePoint deadline) = 0;
  virtual Status Acknowledge(const std::vector<uint64_t>& revocations, TimePoint deadline) = 0;
  // It is with its receiver when this succeeds. The deadline is the call's alone.
  virtual Status Notify(const wire::Notification& notification, TimePoint deadline) = 0;
  // The number of the use, for EndHoldUses.
  virtual Result<uint64_t> UseHold(const wire::HoldUse& use, TimePoint deadline) = 0;
  // Says the first of them, as many as the owner takes at once, and answers how many these are.
  virtual Result<size_t> EndHoldUses(std::span<const wire::HoldUseEnd> ends,
                                     TimePoint deadline) = 0;
  // The owner moves bytes; returns what became of it once no byte of it moves any more. A failure
  // says nothing of that: EndExecution may. `stop` ends the call, not the moving.
  virtual Result<wire::PeerExecutionEnd> Execute(const wire::PeerExecution& what,
                                                 TimePoint deadline, CallCanceller& stop,
                                                 engine::PeerExecutor::Watcher& watcher) = 0;
  virtual Result<wire::PeerExecutionEnd> EndExecution(const std::string& id,
                                                      TimePoint deadline) = 0;
  // Shows the owner, in the other direction, that this sidecar has this session with it.
  virtual std::string Proof() const = 0;
  // Describe, FetchDescriptors and Notify fail from now on, also where they wait. The session
  // stays.
  virtual void StopFetching() = 0;
  virtual void Break() = 0;  // ends the session and its calls soon, from any thread
};

}  // namespace gantry::peer
