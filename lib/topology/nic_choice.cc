#include "lib/topology/nic_choice.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace gantry::topology {
namespace {

bool Contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::string Joined(const std::vector<std::string>& names) {
  std::string all;
  for (const std::string& name : names) all += (all.empty() ? "" : ", ") + name;
  return all;
}

}  // namespace

NicChooser::NicChooser(const std::vector<RdmaDevice>& nics, const std::vector<std::string>& gpus,
                       NicRules rules, std::string root)
    : rules_(std::move(rules)), root_(std::move(root)) {
  for (const RdmaDevice& nic : nics) {
    if (nic.ActivePort() == nullptr) {
      inactive_.push_back(nic.name);
      continue;
    }
    Nic known = {nic.name, PlaceOf(nic.pci_address, root_)};
    known.place.numa_node = nic.numa_node;
    nics_.push_back(std::move(known));
  }
  std::sort(nics_.begin(), nics_.end(), [](const Nic& a, const Nic& b) {
    return std::tie(a.place.address, a.name) < std::tie(b.place.address, b.name);
  });
  for (const std::string& gpu : gpus) gpus_.push_back(PlaceOf(gpu, root_));
  std::sort(gpus_.begin(), gpus_.end(),
            [](const PciPlace& a, const PciPlace& b) { return a.address < b.address; });
}

Result<NicChoice> NicChooser::ForGpu(std::string_view pci_address) const {
  return Choose(PlaceOf(pci_address, root_), "GPU " + std::string(pci_address));
}

Result<NicChoice> NicChooser::ForHostMemory(int numa_node) const {
  PciPlace place;
  place.numa_node = numa_node;
  return Choose(place, numa_node < 0 ? "host memory of an unknown NUMA node"
                                     : "host memory of NUMA node " + std::to_string(numa_node));
}

Result<NicChoice> NicChooser::Choose(const PciPlace& target, const std::string& target_name) const {
  Nics chosen;
  if (rules_.use.empty()) {
    chosen = Nearest(target);
    if (chosen.empty()) return Fail(NoneThere());
    std::rotate(chosen.begin(), chosen.begin() + BeginOf(target, chosen), chosen.end());
  } else {
    ASSIGN_OR_RETURN(chosen, Named());
  }
  NicChoice choice;
  choice.distance = NicDistance::kSameSwitch;
  for (const Nic* nic : chosen) {
    choice.names.push_back(nic->name);
    choice.distance = std::max(choice.distance, DistanceBetween(nic->place, target));
  }
  choice.reason = target_name + ": " + std::to_string(chosen.size()) +
                  (rules_.use.empty() ? " of " + std::to_string(nics_.size()) + " NICs, "
                                      : " NICs as configured, the farthest ") +
                  std::string(TextOf(choice.distance));
  return choice;
}

Result<NicChooser::Nics> NicChooser::Named() const {
  Nics named;
  for (const std::string& name : rules_.use) {
    const auto nic = std::find_if(nics_.begin(), nics_.end(),
                                  [&](const Nic& candidate) { return candidate.name == name; });
    if (nic != nics_.end()) {
      named.push_back(&*nic);
      continue;
    }
    if (Contains(inactive_, name)) {
      return Fail(ErrorCode::kPathUnavailable,
                  "no port of the configured NIC " + name + " is active",
                  "check cable and switch, or configure another NIC");
    }
    std::vector<std::string> names;
    for (const Nic& candidate : nics_) names.push_back(candidate.name);
    return Fail(ErrorCode::kNotFound, "the configured NIC " + name + " is not to be had here",
                names.empty() ? "no NIC with an active port is; give the container one"
                              : "there are " + Joined(names));
  }
  return named;
}

NicChooser::Nics NicChooser::Nearest(const PciPlace& target) const {
  Nics nearest;
  NicDistance smallest = NicDistance::kUnknown;
  for (const Nic& nic : nics_) {
    if (Contains(rules_.exclude, nic.name)) continue;
    const NicDistance distance = DistanceBetween(nic.place, target);
    if (distance < smallest) nearest.clear();
    smallest = std::min(smallest, distance);
    if (distance == smallest) nearest.push_back(&nic);
  }
  return nearest;
}

// GPUs that have the same NICs begin as far from each other as these go round.
size_t NicChooser::BeginOf(const PciPlace& target, const Nics& nearest) const {
  size_t before = 0;
  size_t sharing = 0;
  for (const PciPlace& gpu : gpus_) {
    if (Nearest(gpu) != nearest) continue;
    ++sharing;
    if (gpu.address < target.address) ++before;
  }
  if (sharing <= nearest.size()) return before * nearest.size() / std::max<size_t>(sharing, 1);
  return before % nearest.size();
}

Error NicChooser::NoneThere() const {
  if (!nics_.empty()) {
    return Error(ErrorCode::kPathUnavailable,
                 "every NIC with an active port is excluded: " + Joined(rules_.exclude),
                 "exclude fewer");
  }
  if (!inactive_.empty()) {
    return Error(ErrorCode::kPathUnavailable, "no NIC has an active port: " + Joined(inactive_),
                 "check cables and switches");
  }
  return Error(ErrorCode::kPathUnavailable, "there is no RDMA device",
               "give the container one, through the device plugin");
}

}  // namespace gantry::topology
