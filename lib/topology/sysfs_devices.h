// The devices of this machine that move or hold data, as sysfs lists them: RDMA devices and
// accelerators, without asking any vendor's library. Stateless; thread-safe.
#pragma once

#include <string>
#include <vector>

namespace gantry::topology {

struct RdmaDevice {
  std::string name;         // "mlx5_0"
  std::string device_file;  // "/dev/infiniband/uverbs0"; empty: sysfs names none
  bool active = false;      // some port is
  std::string rate;         // of that port, "400 Gb/sec (4X NDR)"
  std::string link_layer;   // "InfiniBand", "Ethernet"
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
