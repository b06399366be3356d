// How far two PCI devices, or a NIC and a NUMA node, are from each other, by their places in sysfs
// alone. Stateless; thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gantry::topology {

// What lies between the two: nearest first.
enum class NicDistance {
  kSameSwitch,       // one PCI switch
  kSeveralSwitches,  // PCI switches, and not the root of the tree
  kSameRoot,         // a root port or a host bridge
  kSameNode,         // host bridges of one NUMA node
  kOtherNode,        // the link between sockets
  kUnknown,          // sysfs does not tell
};

// "behind the same PCI switch"
std::string_view TextOf(NicDistance distance);

// Where a device is in the PCI tree.
struct PciPlace {
  std::string address;               // "0000:1b:00.0"; empty: on no PCI bus
  std::string host_bridge;           // "pci0000:15"; empty: unknown
  std::vector<std::string> bridges;  // the ports from the host bridge to the device
  int numa_node = -1;
};

// With lower-case letters and a domain of four digits, whoever wrote it; empty: it is no address.
std::string PciAddressOf(std::string_view text);

// The address of the last PCI device in a path of sysfs, that of virtio0 in
// ".../0000:00:03.0/virtio0"; empty: there is none.
std::string PciAddressInPath(const std::string& path);

// Of a device with this address; of an unknown one only the address is told.
PciPlace PlaceOf(std::string_view pci_address, const std::string& root = "/");

NicDistance DistanceBetween(const PciPlace& a, const PciPlace& b);
NicDistance DistanceBetweenNodes(int node, int other_node);

}  // namespace gantry::topology
