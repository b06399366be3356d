#include "sidecar/transport/rdma/verbs/rdma_devices.h"

#include <sys/random.h>

#include <algorithm>
#include <utility>

#include "lib/base/log.h"
#include "sidecar/transport/chunk_plan.h"
#include "sidecar/transport/rdma/verbs/verbs_error.h"

namespace gantry::transport {
namespace {

constexpr uint32_t k24Bits = 0xffffff;
constexpr uint32_t kReadsMax = 16;

Result<RdmaDevices::Nic> OpenOne(const RdmaOptions& options, Verbs& verbs,
                                 const std::string& name) {
  RdmaDevices::Nic nic;
  ASSIGN_OR_RETURN(nic.device, verbs.Open(name, options.port));
  ASSIGN_OR_RETURN(nic.port, nic.device->Port());
  if (!nic.port.active) {
    return Fail(ErrorCode::kPathUnavailable,
                "port " + std::to_string(options.port) + " of " + name + " is not active",
                "check cable and switch");
  }
  if (const uint32_t most = nic.port.message_bytes_max;
      most != 0 && most < wire::kMessageBytesMin) {
    return Fail(ErrorCode::kPathUnavailable, name + " takes messages of " + std::to_string(most) +
                                                 " bytes at most, and less than " +
                                                 std::to_string(wire::kMessageBytesMin) +
                                                 " are of no use");
  }
  if (options.mtu != 0) nic.port.mtu = std::min(nic.port.mtu, options.mtu);
  const std::vector<GidEntry> gids = nic.device->Gids();
  auto chosen = ChooseGid(gids, {options.gid_index, {}});
  if (!chosen) return Fail(std::move(chosen).error().WithContext(name));
  const auto gid = std::find_if(gids.begin(), gids.end(), [&](const GidEntry& entry) {
    return entry.index == chosen->index;
  });
  if (gid == gids.end()) return Fail(ErrorCode::kNotFound, name + ": the chosen GID is not there");
  nic.gid = *gid;
  nic.why_gid = std::move(chosen->reason);
  nic.peer_gids = std::make_unique<PeerGids>(*nic.device, nic.gid, options.gid_index >= 0);
  auto chunk_bytes = ChunkBytes(
      {.device_max = nic.device->limits().region_bytes_max, .override_bytes = options.chunk_bytes});
  if (!chunk_bytes) return Fail(std::move(chunk_bytes).error().WithContext(name));
  nic.chunk_bytes = *chunk_bytes;
  nic.dma_bufs = std::make_unique<DmaBufAbility>(*nic.device);
  return nic;
}

// Also where no device is to blame.
Status CheckChunkBytes(const RdmaOptions& options) {
  const auto bytes = ChunkBytes({.override_bytes = options.chunk_bytes});
  if (bytes) return {};
  return Fail(Error(bytes.error()).WithContext("--rdma-chunk-bytes"));
}

// A connection has queue pairs of all devices, and its peer makes no more.
Status CheckQueuePairs(size_t devices, int queue_pairs) {
  const size_t product = devices * static_cast<size_t>(queue_pairs);
  if (product <= size_t{wire::kQueuePairsMax}) return {};
  return Fail(ErrorCode::kInvalidArgument,
              std::to_string(devices) + " RDMA devices with --rdma-queue-pairs " +
                  std::to_string(queue_pairs) + " make " + std::to_string(product) +
                  " queue pairs to each peer, which takes " + std::to_string(wire::kQueuePairsMax),
              "lower --rdma-queue-pairs, or name fewer devices in --rdma-devices");
}

std::string DmaBufWord(const DmaBufAbility& ability) {
  const Status able = ability.Check();
  return able ? "taken" : able.error().message;
}

// Of a work request, through whichever of the devices it goes.
uint64_t SliceBytes(const RdmaOptions& options, const std::vector<RdmaDevices::Nic>& nics) {
  uint64_t bytes = options.slice_bytes;
  std::string device;
  for (const RdmaDevices::Nic& nic : nics) {
    const uint32_t most = nic.port.message_bytes_max;
    if (most == 0 || most >= bytes) continue;
    bytes = most;
    device = nic.device->name();
  }
  if (!device.empty()) {
    log::Warning(
        "work requests are smaller than --rdma-slice-bytes: a port takes no longer messages",
        {{"device", device}, {"bytes", bytes}, {"asked_for", options.slice_bytes}});
  }
  return bytes;
}

void WarnOfMemlock() {
  const auto bytes = LockedBytesMax();
  if (!bytes || *bytes >= kLockedBytesSmall) return;
  log::Warning(
      "the limit of locked memory is small: without CAP_IPC_LOCK buffers cannot be "
      "registered on RDMA devices",
      {{"bytes", *bytes}, {"hint", "raise RLIMIT_MEMLOCK of the container"}});
}

const std::vector<std::string>& Wanted(const RdmaOptions& options,
                                       const std::vector<std::string>& found) {
  if (!options.devices.empty()) return options.devices;
  return options.offered.empty() ? found : options.offered;
}

}  // namespace

Result<std::unique_ptr<RdmaDevices>> RdmaDevices::Open(const RdmaOptions& options, Verbs& verbs) {
  ASSIGN_OR_RETURN(const std::vector<std::string> found, verbs.Devices());
  if (found.empty()) {
    return Fail(ErrorCode::kPathUnavailable, "there is no RDMA device",
                "`gantryctl doctor` says what is there");
  }
  RETURN_IF_ERROR(CheckChunkBytes(options));
  std::vector<Nic> nics;
  std::string reasons;
  for (const std::string& name : Wanted(options, found)) {
    if (nics.size() == DeviceSet::kMax) {
      log::Warning("an RDMA device is left alone: there are too many", {{"device", name}});
      continue;
    }
    auto nic = OpenOne(options, verbs, name);
    if (nic) {
      log::Info("an RDMA device is used", {{"device", name},
                                           {"gid_index", nic->gid.index},
                                           {"gid", nic->why_gid},
                                           {"mtu", nic->port.mtu},
                                           {"message_bytes_max", nic->port.message_bytes_max},
                                           {"chunk_bytes", nic->chunk_bytes},
                                           {"dma_bufs", DmaBufWord(*nic->dma_bufs)}});
      nics.push_back(*std::move(nic));
      continue;
    }
    if (!options.devices.empty()) return Fail(std::move(nic).error());
    reasons += (reasons.empty() ? "" : "; ") + nic.error().message;
  }
  if (nics.empty()) {
    return Fail(ErrorCode::kPathUnavailable, "no RDMA device can be used: " + reasons);
  }
  RETURN_IF_ERROR(CheckQueuePairs(nics.size(), options.queue_pairs));
  WarnOfMemlock();
  const uint64_t slice_bytes = SliceBytes(options, nics);
  return std::unique_ptr<RdmaDevices>(new RdmaDevices(options, slice_bytes, std::move(nics)));
}

uint64_t RdmaDevices::SliceBytesTo(const std::vector<wire::RdmaDeviceAddress>& peers) const {
  uint64_t bytes = slice_bytes_;
  for (const wire::RdmaDeviceAddress& peer : peers) {
    if (peer.message_bytes_max != 0) bytes = std::min<uint64_t>(bytes, peer.message_bytes_max);
  }
  return bytes;
}

void RdmaDevices::TakeEvents(size_t index) const {
  const Nic& nic = nics_[index];
  for (;;) {
    const PortChange change = nic.device->NextEvent();
    if (change == PortChange::kNone) return;
    if (change == PortChange::kOther) continue;
    const bool up = change == PortChange::kUp;
    nic.up->store(up, std::memory_order_relaxed);
    log::Warning(up ? "a port is active again" : "a port went down, nothing new goes over it",
                 {{"device", nic.device->name()}, {"gone", change == PortChange::kDeviceGone}});
    if (change == PortChange::kDeviceGone) return;
  }
}

DeviceSet RdmaDevices::Up() const {
  DeviceSet up;
  for (size_t i = 0; i < nics_.size(); ++i) {
    if (IsUp(i)) up.Add(i);
  }
  return up;
}

std::string RdmaDevices::FindLost(DeviceSet devices) const {
  for (const uint32_t index : devices.List()) {
    const VerbsDevice& device = *nics_[index].device;
    const Result<VerbsPort> port = device.Port();
    if (!port || !port->active) return device.name();
  }
  return {};
}

Error RdmaDevices::NoneUpOf(DeviceSet devices) const {
  std::string names;
  for (size_t i = 0; i < nics_.size(); ++i) {
    if (devices.Has(i)) names += (names.empty() ? "" : ", ") + nics_[i].device->name();
  }
  return {ErrorCode::kPathUnavailable,
          "no RDMA device here that has the buffer has an active port: " + names,
          "check cable and switch, or register the buffer anew: it takes others then"};
}

std::vector<wire::RdmaDeviceAddress> RdmaDevices::Addresses() const {
  std::vector<wire::RdmaDeviceAddress> addresses;
  for (const Nic& nic : nics_) {
    addresses.push_back(
        {nic.device->name(), nic.gid.gid, nic.port.ethernet, nic.port.message_bytes_max});
  }
  return addresses;
}

std::vector<RegionDevice> RdmaDevices::RegionDevices(DeviceSet on) const {
  std::vector<RegionDevice> devices(nics_.size());
  for (size_t i = 0; i < nics_.size(); ++i) {
    if (on.Has(i))
      devices[i] = {nics_[i].device.get(), nics_[i].chunk_bytes, nics_[i].dma_bufs.get()};
  }
  return devices;
}

QueuePairOptions RdmaDevices::QueuePairOptionsOf(size_t index, const GidEntry& gid) const {
  QueuePairOptions options;
  options.work_requests =
      std::min(options_.work_requests, nics_[index].device->limits().work_requests_max);
  options.timeout = options_.timeout;
  options.retries = options_.retries;
  options.rnr_retries = options_.rnr_retries;
  options.hop_limit = options_.hop_limit;
  options.traffic_class = options_.traffic_class;
  options.service_level = options_.service_level;
  options.gid_index = gid.index;
  options.reads_sent = std::min(nics_[index].device->limits().reads_sent_max, kReadsMax);
  return options;
}

void RdmaDevices::SayInlineBytes(size_t index, uint32_t bytes) const {
  const Nic& nic = nics_[index];
  if (nic.inline_said->exchange(true)) return;
  log::Warning("an RDMA device takes shorter writes inline than --rdma-inline-bytes",
               {{"device", nic.device->name()},
                {"bytes", bytes},
                {"asked_for", options_.inline_bytes},
                {"hint", "ask for less: devices do not tell how much they take"}});
}

QueuePairAddress RdmaDevices::AddressOf(size_t index, const VerbsQueuePair& queue_pair,
                                        const GidEntry& gid) const {
  const Nic& nic = nics_[index];
  QueuePairAddress address;
  address.number = queue_pair.number();
  // Packets of an earlier life of the number are told by it.
  (void)!getrandom(&address.packet_sequence, sizeof(address.packet_sequence), 0);
  address.packet_sequence &= k24Bits;
  address.lid = nic.port.lid;
  address.gid = gid.gid;
  address.mtu = nic.port.mtu;
  address.reads_max = std::min(nic.device->limits().reads_max, kReadsMax);
  return address;
}

}  // namespace gantry::transport
