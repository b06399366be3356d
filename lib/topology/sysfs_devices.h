// The devices of this machine that move or hold data, as sysfs lists them: RDMA devices and
// accelerators, without asking any vendor's library. Stateless; thread-safe.
#pragma once

#include <string>
#include <vector>

namespace gantry::topology {

struct RdmaPort {
  int number = 0;
  std::string state;       // "ACTIVE", "DOWN"
  std::string rate;        // "400 Gb/sec (4X NDR)"
  std::string link_layer;  // "InfiniBand", "Ethernet"
  std::string netdev;      // its network interface; empty: sysfs names none

  bool active() const { return state == "ACTIVE"; }
};

struct RdmaDevice {
  std::string name;         // "mlx5_0"
  std::string device_file;  // "/dev/infiniband/uverbs0"; empty: sysfs names none
  std::string pci_address;  // "0000:1b:00.0"; empty: it is on no PCI bus (soft-RoCE)
  int numa_node = -1;       // -1: unknown
  std::vector<RdmaPort> ports;

  // The first that is; null: there is none.
  const RdmaPort* ActivePort() const;
};

// A PCI device of a class that accelerators have: 3D controller, display controller other than VGA,
// processing accelerator.
struct PciAccelerator {
  std::string address;    // "0000:1b:00.0"
  std::string vendor_id;  // as PCI numbers it, "0x1234"
  int numa_node = -1;
};

// Sorted by name. `root` is "/" but for tests. What cannot be read is left out.
std::vector<RdmaDevice> ListRdmaDevices(const std::string& root = "/");
std::vector<PciAccelerator> ListPciAccelerators(const std::string& root = "/");

}  // namespace gantry::topology
