#include "lib/topology/nic_distance.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <system_error>

#include "lib/topology/sysfs_file.h"

namespace gantry::topology {
namespace {

namespace fs = std::filesystem;

bool IsHex(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(),
                                      [](unsigned char c) { return std::isxdigit(c) != 0; });
}

bool IsHostBridge(std::string_view component) {
  if (!component.starts_with("pci")) return false;
  const size_t colon = component.find(':');
  return colon != std::string_view::npos && IsHex(component.substr(3, colon - 3)) &&
         IsHex(component.substr(colon + 1));
}

}  // namespace

std::string_view TextOf(NicDistance distance) {
  switch (distance) {
    case NicDistance::kSameSwitch:
      return "behind the same PCI switch";
    case NicDistance::kSeveralSwitches:
      return "behind PCI switches of the same root port";
    case NicDistance::kSameRoot:
      return "at the same PCI host bridge";
    case NicDistance::kSameNode:
      return "at the same NUMA node";
    case NicDistance::kOtherNode:
      return "at another NUMA node";
    case NicDistance::kUnknown:
      break;
  }
  return "at an unknown distance";
}

std::string PciAddressOf(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const size_t colon = lower.find(':');
  if (colon == std::string::npos) return {};
  // Vendors write the domain with eight digits, sysfs with four or, where these do not do, more.
  std::string domain = lower.substr(0, colon);
  while (domain.size() > 4 && domain.front() == '0') domain.erase(0, 1);
  const std::string_view rest = std::string_view(lower).substr(colon + 1);
  const bool well_formed = domain.size() >= 4 && IsHex(domain) && rest.size() == 7 &&
                           IsHex(rest.substr(0, 2)) && rest[2] == ':' && IsHex(rest.substr(3, 2)) &&
                           rest[5] == '.' && IsHex(rest.substr(6));
  return well_formed ? domain.append(":").append(rest) : std::string();
}

std::string PciAddressInPath(const std::string& path) {
  std::string address;
  for (const fs::path& component : fs::path(path)) {
    std::string here = PciAddressOf(component.string());
    if (!here.empty()) address = std::move(here);
  }
  return address;
}

PciPlace PlaceOf(std::string_view pci_address, const std::string& root) {
  PciPlace place;
  place.address = PciAddressOf(pci_address);
  if (place.address.empty()) return place;
  std::error_code error;
  const fs::path folder =
      fs::canonical(fs::path(root) / "sys/bus/pci/devices" / place.address, error);
  if (error) return place;
  place.numa_node = NumaNodeOf(folder);
  for (const fs::path& component : folder) {
    const std::string name = component.string();
    if (IsHostBridge(name)) {  // one behind another is a tree of its own
      place.host_bridge = name;
      place.bridges.clear();
    } else if (!place.host_bridge.empty() && name != place.address) {
      place.bridges.push_back(name);
    }
  }
  return place;
}

NicDistance DistanceBetween(const PciPlace& a, const PciPlace& b) {
  if (a.host_bridge.empty() || a.host_bridge != b.host_bridge) {
    return DistanceBetweenNodes(a.numa_node, b.numa_node);
  }
  const auto [end, other_end] =
      std::mismatch(a.bridges.begin(), a.bridges.end(), b.bridges.begin(), b.bridges.end());
  const auto shared = static_cast<size_t>(end - a.bridges.begin());
  // The first is the root port, the second one the upstream port of a switch.
  if (shared < 2) return NicDistance::kSameRoot;
  // Behind one switch each device has a downstream port of its own, or they share that too.
  const bool one_switch = a.bridges.size() <= shared + 1 && b.bridges.size() <= shared + 1;
  return one_switch ? NicDistance::kSameSwitch : NicDistance::kSeveralSwitches;
}

NicDistance DistanceBetweenNodes(int node, int other_node) {
  if (node < 0 || other_node < 0) return NicDistance::kUnknown;
  return node == other_node ? NicDistance::kSameNode : NicDistance::kOtherNode;
}

}  // namespace gantry::topology
