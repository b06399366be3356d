// This machine's RDMA devices and accelerators as sysfs lists them, without any vendor library.
// Stateless; thread-safe.
#pragma once

#include <string>
#include <vector>

namespace gantry::topology {

struct RdmaPort {
  int number = 0;
  std::string state;       // "ACTIVE", "DOWN"
  std::string rate;        // "400 Gb/sec (4X NDR)"
  std::string link_layer;  // "InfiniBand", "Ethernet"
  std::string netdev;      // network interface; empty: unknown to sysfs

  bool active() const { return state == "ACTIVE"; }
};

struct RdmaDevice {
  std::string name;         // "mlx5_0"
  std::string device_file;  // "/dev/infiniband/uverbs0"; empty: unknown to sysfs
  std::string pci_address;  // "0000:1b:00.0"; empty: not on a PCI bus (soft-RoCE)
  int numa_node = -1;       // -1: unknown
  std::vector<RdmaPort> ports;

  // Returns the first active port; null: there is none.
  const RdmaPort* ActivePort() const;
};

// A PCI device of an accelerator's class: 3D controller, display controller other than VGA, or
// processing accelerator.
struct PciAccelerator {
  std::string address;    // "0000:1b:00.0"
  std::string vendor_id;  // PCI vendor id, "0x1234"
  int numa_node = -1;
};

// Sorted by name. `root` is "/" except in tests. Unreadable entries are omitted.
std::vector<RdmaDevice> ListRdmaDevices(const std::string& root = "/");
std::vector<PciAccelerator> ListPciAccelerators(const std::string& root = "/");

}  // namespace gantry::topology
