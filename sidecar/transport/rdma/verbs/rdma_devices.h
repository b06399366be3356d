// The RDMA devices that a sidecar uses, open from its start to its end, in the order by which peers
// number them. Thread-safe once open.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "lib/base/result.h"
#include "sidecar/transport/rdma/verbs/memory_region_set.h"
#include "sidecar/transport/rdma/verbs/nic_counters.h"
#include "sidecar/transport/rdma/verbs/peer_gids.h"
#include "sidecar/transport/rdma/verbs/rdma_options.h"
#include "sidecar/transport/rdma/verbs/verbs.h"

namespace gantry::transport {

class RdmaDevices {
 public:
  struct Nic {
    std::unique_ptr<VerbsDevice> device;
    VerbsPort port;       // of the start, its MTU no more than the option says
    GidEntry gid;         // of the start: peers know the device by it
    std::string why_gid;  // it and not another one, for people
    std::unique_ptr<PeerGids> peer_gids;
    uint64_t chunk_bytes = 0;  // of a memory region, as the device or the option says
    std::unique_ptr<std::atomic<bool>> up = std::make_unique<std::atomic<bool>>(true);
    std::unique_ptr<NicCounters> counters = std::make_unique<NicCounters>();
    std::unique_ptr<DmaBufAbility> dma_bufs;
    std::unique_ptr<std::atomic<bool>> inline_said = std::make_unique<std::atomic<bool>>(false);
  };

  // Those with an active port and a usable GID, up to DeviceSet::kMax; an operator's list has to be
  // complete. The error says why there is none; kInvalidArgument: the options do not fit together.
  // `verbs` outlives this.
  static Result<std::unique_ptr<RdmaDevices>> Open(const RdmaOptions& options, Verbs& verbs);

  // What the device said since the last time: its port went down, or came back. One thread.
  void TakeEvents(size_t index) const;
  DeviceSet Up() const;
  // One of these that says of its port that it is not active, or nothing at all; empty: none. Takes
  // as long as the devices take.
  std::string AskForLost(DeviceSet devices) const;
  // Why nothing goes over these. REQUIRES that none of them is up.
  Error NoneUpOf(DeviceSet devices) const;
  bool IsUp(size_t index) const { return nics_[index].up->load(std::memory_order_relaxed); }

  size_t size() const { return nics_.size(); }
  const Nic& at(size_t index) const { return nics_[index]; }
  const RdmaOptions& options() const { return options_; }
  std::vector<wire::RdmaDeviceAddress> Addresses() const;
  // The longest work request that all devices here and these of a peer take: one for all, since a
  // transfer is cut before it is known which of them carries what.
  uint64_t SliceBytesTo(const std::vector<wire::RdmaDeviceAddress>& peers) const;
  // Of all of them, those that are not `on` null.
  std::vector<RegionDevice> RegionDevices(DeviceSet on) const;
  // Of one that has this of the device's GIDs.
  QueuePairOptions QueuePairOptionsOf(size_t index, const GidEntry& gid) const;
  // That it takes so many inline, less than asked for; once.
  void SayInlineBytes(size_t index, uint32_t bytes) const;
  // What a queue pair of this device says of itself.
  QueuePairAddress AddressOf(size_t index, const VerbsQueuePair& queue_pair,
                             const GidEntry& gid) const;

 private:
  RdmaDevices(const RdmaOptions& options, uint64_t slice_bytes, std::vector<Nic> nics)
      : options_(options), slice_bytes_(slice_bytes), nics_(std::move(nics)) {}

  const RdmaOptions options_;
  const uint64_t slice_bytes_;  // the option's, or less
  const std::vector<Nic> nics_;
};

}  // namespace gantry::transport
