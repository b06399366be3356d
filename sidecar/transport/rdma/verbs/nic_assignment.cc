#include "sidecar/transport/rdma/verbs/nic_assignment.h"

#include <algorithm>
#include <set>
#include <utility>

#include "lib/base/log.h"

namespace gantry::transport {
namespace {

using topology::NicChoice;

// One that sysfs does not list is at no known place. Which ports are active is known better here.
std::vector<topology::RdmaDevice> PlacesOf(const RdmaDevices& devices, const std::string& root) {
  const std::vector<topology::RdmaDevice> listed = topology::ListRdmaDevices(root);
  std::vector<topology::RdmaDevice> nics;
  for (size_t i = 0; i < devices.size(); ++i) {
    topology::RdmaDevice nic;
    nic.name = devices.at(i).device->name();
    const auto known = std::find_if(listed.begin(), listed.end(),
                                    [&](const auto& one) { return one.name == nic.name; });
    if (known != listed.end()) nic = *known;
    topology::RdmaPort active;
    active.state = "ACTIVE";
    nic.ports = {active};
    nics.push_back(std::move(nic));
  }
  return nics;
}

}  // namespace

NicAssignment::NicAssignment(const RdmaDevices& devices, Machine machine)
    : devices_(devices), machine_(std::move(machine)), nics_(PlacesOf(devices, machine_.root)) {}

std::unique_ptr<const NicAssignment::Chooser> NicAssignment::ChooserOf(DeviceSet devices) const {
  std::vector<topology::RdmaDevice> nics;
  for (size_t i = 0; i < nics_.size(); ++i) {
    if (devices.Has(i)) nics.push_back(nics_[i]);
  }
  // The GPUs decide about the order of devices, which a set has none of.
  return std::make_unique<const Chooser>(std::move(nics), std::vector<std::string>{},
                                         topology::NicRules{}, machine_.root);
}

DeviceSet NicAssignment::SetOf(const std::vector<std::string>& names) const {
  DeviceSet set;
  for (size_t i = 0; i < nics_.size(); ++i) {
    if (std::find(names.begin(), names.end(), nics_[i].name) != names.end()) set.Add(i);
  }
  return set;
}

DeviceSet NicAssignment::Choose(const std::string& target, DeviceSet among,
                                const ChooseFrom& choose) const {
  const MutexLock lock(mutex_);
  if (const DeviceSet up = devices_.Up(); up != up_) {
    up_ = up;
    chosen_.clear();
  }
  const auto known = chosen_.find({target, among});
  if (known != chosen_.end()) return known->second;
  DeviceSet chosen;
  std::string why;
  if (const Result<NicChoice> nearest = choose(*ChooserOf(among))) {
    chosen = SetOf(nearest->names);
    why = nearest->reason;
  }
  // What has no active port is there for when it has one again.
  if (const Result<NicChoice> active = choose(*ChooserOf(among & up_));
      active && (chosen & up_) != chosen) {
    chosen = chosen | SetOf(active->names);
    why += "; some without an active port, so besides " + active->reason;
  }
  std::string names;
  for (const uint32_t device : chosen.List()) {
    names += (names.empty() ? "" : ", ") + nics_[device].name;
  }
  log::Info("RDMA devices were chosen for memory",
            {{"of", target}, {"devices", names}, {"why", why}});
  chosen_.emplace(std::pair(target, among), chosen);
  return chosen;
}

DeviceSet NicAssignment::Taking(const std::set<std::string>& gpus) const {
  DeviceSet taking;
  for (size_t i = 0; i < devices_.size(); ++i) {
    const bool takes = std::all_of(gpus.begin(), gpus.end(), [&](const std::string& uuid) {
      return devices_.at(i).dma_bufs->Check(uuid).has_value();
    });
    if (takes) taking.Add(i);
  }
  return taking;
}

DeviceSet NicAssignment::ForGpu(const std::string& uuid) const {
  std::string address = machine_.address_of_gpu(uuid);
  if (address.empty()) address = "at an unknown place";
  const DeviceSet taking = Taking({uuid});
  return Choose("GPU " + uuid + " " + address, taking.empty() ? DeviceSet::All() : taking,
                [&](const Chooser& chooser) { return chooser.ForGpu(address); });
}

DeviceSet NicAssignment::ForHostMemory(int numa_node) const {
  return Choose(numa_node < 0 ? "the host" : "the host, NUMA node " + std::to_string(numa_node),
                DeviceSet::All(),
                [&](const Chooser& chooser) { return chooser.ForHostMemory(numa_node); });
}

int NicAssignment::NodeOf(const std::vector<memory::NicPiece>& pieces) const {
  const bool equal = std::all_of(nics_.begin(), nics_.end(), [&](const auto& nic) {
    return nic.numa_node == nics_.front().numa_node;
  });
  if (equal) return -1;  // all are as far, wherever it lies
  std::vector<std::span<const std::byte>> memory;
  for (const memory::NicPiece& piece : pieces) {
    const auto bytes = piece.allocation->in_process().BytesForDevices();
    if (!bytes || piece.offset > bytes->size()) return -1;  // whoever registers it says so
    memory.push_back(bytes->subspan(piece.offset)
                         .first(std::min<size_t>(piece.length, bytes->size() - piece.offset)));
  }
  return machine_.node_of_memory(memory);
}

DeviceSet NicAssignment::For(const std::vector<memory::NicPiece>& pieces) const {
  std::set<std::string> gpus;
  std::vector<memory::NicPiece> host;
  for (const memory::NicPiece& piece : pieces) {
    if (piece.allocation->kind() == wire::MemoryKind::kGpu) {
      gpus.insert(piece.allocation->gpu().device_uuid);
    } else {
      host.push_back(piece);
    }
  }
  DeviceSet chosen;
  for (const std::string& uuid : gpus) chosen = chosen | ForGpu(uuid);
  if (!host.empty()) chosen = chosen | ForHostMemory(NodeOf(host));
  // Each of them has the whole buffer.
  const DeviceSet taking = chosen & Taking(gpus);
  return taking.empty() ? chosen : taking;
}

void NicAssignment::LogChoices(const std::vector<std::string>& gpus) const {
  for (const std::string& uuid : gpus) (void)ForGpu(uuid);
  std::set<int> nodes;
  for (const topology::RdmaDevice& nic : nics_) nodes.insert(nic.numa_node);
  if (nodes.size() < 2) nodes = {-1};
  for (const int node : nodes) (void)ForHostMemory(node);
}

}  // namespace gantry::transport
