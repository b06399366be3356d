#include "lib/topology/sysfs_devices.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>

namespace gantry::topology {
namespace {

namespace fs = std::filesystem;

// The first line of a file, or nothing.
std::string FirstLine(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// Entries of a folder in order; none when it is not there.
std::vector<fs::path> Entries(const fs::path& folder) {
  std::vector<fs::path> entries;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    entries.push_back(entry->path());
  }
  std::sort(entries.begin(), entries.end());
  return entries;
}

std::string DeviceFileOf(const fs::path& root, const std::string& device) {
  for (const fs::path& uverbs : Entries(root / "sys/class/infiniband_verbs")) {
    if (FirstLine(uverbs / "ibdev") == device) {
      return "/dev/infiniband/" + uverbs.filename().string();
    }
  }
  return {};
}

}  // namespace

std::vector<RdmaDevice> ListRdmaDevices(const std::string& root) {
  std::vector<RdmaDevice> devices;
  for (const fs::path& entry : Entries(fs::path(root) / "sys/class/infiniband")) {
    RdmaDevice device;
    device.name = entry.filename().string();
    device.device_file = DeviceFileOf(root, device.name);
    for (const fs::path& port : Entries(entry / "ports")) {
      const bool active = FirstLine(port / "state").find("ACTIVE") != std::string::npos;
      if (device.active && !active) continue;
      device.active = active;
      device.rate = FirstLine(port / "rate");
      device.link_layer = FirstLine(port / "link_layer");
    }
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
    PciAccelerator accelerator{entry.filename().string(), FirstLine(entry / "vendor"), -1};
    const std::string node = FirstLine(entry / "numa_node");
    std::from_chars(node.data(), node.data() + node.size(), accelerator.numa_node);
    accelerators.push_back(std::move(accelerator));
  }
  return accelerators;
}

}  // namespace gantry::topology
