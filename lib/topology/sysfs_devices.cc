#include "lib/topology/sysfs_devices.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "lib/topology/nic_distance.h"
#include "lib/topology/sysfs_file.h"

namespace gantry::topology {
namespace {

namespace fs = std::filesystem;

std::string DeviceFileOf(const fs::path& root, const std::string& device) {
  for (const fs::path& uverbs : Entries(root / "sys/class/infiniband_verbs")) {
    if (FirstLine(uverbs / "ibdev") == device) {
      return "/dev/infiniband/" + uverbs.filename().string();
    }
  }
  return {};
}

// "4: ACTIVE" names the state after its number.
std::string StateOf(const fs::path& port) {
  const std::string line = FirstLine(port / "state");
  const size_t name = line.find_first_not_of(": 0123456789");
  return name == std::string::npos ? line : line.substr(name);
}

// The interface of the port's GIDs (Ethernet), or the one that the device has for this port.
std::string NetdevOf(const fs::path& device, const fs::path& port, int number) {
  for (const fs::path& gid : Entries(port / "gid_attrs/ndevs")) {
    std::string name = FirstLine(gid);
    if (!name.empty()) return name;
  }
  for (const fs::path& netdev : Entries(device / "device/net")) {
    int index = 0;  // from 0 on, where the ports of RDMA count from 1
    const std::string text = FirstLine(netdev / "dev_port");
    std::from_chars(text.data(), text.data() + text.size(), index);
    if (index + 1 == number) return netdev.filename().string();
  }
  return FirstLine(device / "parent");  // of soft-RoCE
}

std::vector<RdmaPort> PortsOf(const fs::path& device) {
  std::vector<RdmaPort> ports;
  for (const fs::path& folder : Entries(device / "ports")) {
    RdmaPort port;
    const std::string number = folder.filename().string();
    std::from_chars(number.data(), number.data() + number.size(), port.number);
    port.state = StateOf(folder);
    port.rate = FirstLine(folder / "rate");
    port.link_layer = FirstLine(folder / "link_layer");
    port.netdev = NetdevOf(device, folder, port.number);
    ports.push_back(std::move(port));
  }
  return ports;
}

}  // namespace

const RdmaPort* RdmaDevice::ActivePort() const {
  const auto port = std::find_if(ports.begin(), ports.end(),
                                 [](const RdmaPort& candidate) { return candidate.active(); });
  return port == ports.end() ? nullptr : &*port;
}

std::vector<RdmaDevice> ListRdmaDevices(const std::string& root) {
  std::vector<RdmaDevice> devices;
  for (const fs::path& entry : Entries(fs::path(root) / "sys/class/infiniband")) {
    RdmaDevice device;
    device.name = entry.filename().string();
    device.device_file = DeviceFileOf(root, device.name);
    std::error_code error;
    const fs::path parent = fs::canonical(entry / "device", error);
    if (!error) {
      device.pci_address = PciAddressInPath(parent.string());
      // What is below a PCI device, as virtio0 is, does not tell the node itself.
      device.numa_node = NumaNodeOf(
          device.pci_address.empty() ? parent
                                     : fs::path(root) / "sys/bus/pci/devices" / device.pci_address);
    }
    device.ports = PortsOf(entry);
    devices.push_back(std::move(device));
  }
  return devices;
}

std::vector<PciAccelerator> ListPciAccelerators(const std::string& root) {
  constexpr std::array<std::string_view, 3> kClasses = {"0x0302", "0x0380", "0x1200"};
  std::vector<PciAccelerator> accelerators;
  for (const fs::path& entry : Entries(fs::path(root) / "sys/bus/pci/devices")) {
    const std::string code = FirstLine(entry / "class").substr(0, 6);
    if (std::find(kClasses.begin(), kClasses.end(), code) == kClasses.end()) continue;
    accelerators.push_back(
        {entry.filename().string(), FirstLine(entry / "vendor"), NumaNodeOf(entry)});
  }
  return accelerators;
}

}  // namespace gantry::topology
