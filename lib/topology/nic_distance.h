// The distance between two PCI devices, or between a NIC and a NUMA node, from sysfs alone.
// Stateless; thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gantry::topology {

// The closest common element; nearest first.
enum class NicDistance {
  kSameSwitch,       // one PCI switch
  kSeveralSwitches,  // PCI switches below the root
  kSameRoot,         // a root port or a host bridge
  kSameNode,         // host bridges of one NUMA node
  kOtherNode,        // the link between sockets
  kUnknown,          // not in sysfs
};

// "behind the same PCI switch"
std::string_view TextOf(NicDistance distance);

// A device's place in the PCI tree.
struct PciPlace {
  std::string address;               // "0000:1b:00.0"; empty: on no PCI bus
  std::string host_bridge;           // "pci0000:15"; empty: unknown
  std::vector<std::string> bridges;  // the ports from the host bridge to the device
  int numa_node = -1;
};

// Normalises an address: lower-case letters and a domain of four digits. Empty: it is no address.
std::string PciAddressOf(std::string_view text);

// Returns the last PCI address in a sysfs path, such as "0000:00:03.0" in
// ".../0000:00:03.0/virtio0". Empty: there is none.
std::string PciAddressInPath(const std::string& path);

// Returns the place of this device; only the address is set if the device is unknown.
PciPlace PlaceOf(std::string_view pci_address, const std::string& root = "/");

NicDistance DistanceBetween(const PciPlace& a, const PciPlace& b);
NicDistance DistanceBetweenNodes(int node, int other_node);

}  // namespace gantry::topology
