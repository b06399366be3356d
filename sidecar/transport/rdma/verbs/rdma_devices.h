// The RDMA devices that a sidecar uses, open for its whole life, in the order by which peers number
// them. Thread-safe once open.
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
    VerbsPort port;       // as of the start; MTU capped by the option
    GidEntry gid;         // as of the start; identifies the device to peers
    std::string why_gid;  // why this GID was chosen, for people
    std::unique_ptr<PeerGids> peer_gids;
    uint64_t chunk_bytes = 0;  // largest memory region, by device or option
    std::unique_ptr<std::atomic<bool>> up = std::make_unique<std::atomic<bool>>(true);
    std::unique_ptr<NicCounters> counters = std::make_unique<NicCounters>();
    std::unique_ptr<DmaBufAbility> dma_bufs;
    std::unique_ptr<std::atomic<bool>> inline_said = std::make_unique<std::atomic<bool>>(false);
  };

  // Opens the devices with an active port and a usable GID, up to DeviceSet::kMax. Every device of
  // an operator's list must open. The error says why there is none; kInvalidArgument: contradictory
  // options. `verbs` outlives this.
  static Result<std::unique_ptr<RdmaDevices>> Open(const RdmaOptions& options, Verbs& verbs);

  // Processes the device's pending events: port down or port up. One thread at a time per device.
  void TakeEvents(size_t index) const;
  DeviceSet Up() const;
  // Queries each port; returns the name of the first device whose port is inactive or cannot be
  // queried. Empty: there is none. Blocks as long as the devices take.
  std::string FindLost(DeviceSet devices) const;
  // The error when none of these devices is up. REQUIRES that none is.
  Error NoneUpOf(DeviceSet devices) const;
  bool IsUp(size_t index) const { return nics_[index].up->load(std::memory_order_relaxed); }

  size_t size() const { return nics_.size(); }
  const Nic& at(size_t index) const { return nics_[index]; }
  const RdmaOptions& options() const { return options_; }
  std::vector<wire::RdmaDeviceAddress> Addresses() const;
  // The longest work request, in bytes, that all devices here and these of a peer accept. Transfers
  // are cut before their device is chosen, so one limit serves all.
  uint64_t SliceBytesTo(const std::vector<wire::RdmaDeviceAddress>& peers) const;
  // Returns all devices; `device` is null for those that are not in `on`.
  std::vector<RegionDevice> RegionDevices(DeviceSet on) const;
  // Options for a queue pair of this device that uses `gid`, one of its GIDs.
  QueuePairOptions QueuePairOptionsOf(size_t index, const GidEntry& gid) const;
  // Warns, once per device, that it inlines only `bytes`, less than configured.
  void SayInlineBytes(size_t index, uint32_t bytes) const;
  // The address of this device's queue pair, for the other end.
  QueuePairAddress AddressOf(size_t index, const VerbsQueuePair& queue_pair,
                             const GidEntry& gid) const;

 private:
  RdmaDevices(const RdmaOptions& options, uint64_t slice_bytes, std::vector<Nic> nics)
      : options_(options), slice_bytes_(slice_bytes), nics_(std::move(nics)) {}

  const RdmaOptions options_;
  const uint64_t slice_bytes_;  // the option's, lowered to the devices' limit
  const std::vector<Nic> nics_;
};

}  // namespace gantry::transport
