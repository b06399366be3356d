#include "tests/lib/topology/fake_sysfs.h"

#include <cstdio>
#include <filesystem>
#include <fstream>

namespace gantry::topology {
namespace {

namespace fs = std::filesystem;

std::string Hex(int number) {
  char text[8];
  std::snprintf(text, sizeof(text), "%02x", static_cast<unsigned char>(number));
  return text;
}

// The port of a root and the switch below it: "pci0000:15/0000:15:01.0/0000:16:00.0".
std::string SwitchOf(int bus) {
  const std::string root = "0000:" + Hex(bus);
  return "pci" + root + "/" + root + ":01.0/0000:" + Hex(bus + 1) + ":00.0";
}

// Behind the switch, at a downstream port of its own.
std::string BehindSwitch(int bus, int slot) {
  return SwitchOf(bus) + "/0000:" + Hex(bus + 2) + ":0" + std::to_string(slot) +
         ".0/0000:" + Hex(bus + 3 + slot) + ":00.0";
}

}  // namespace

FakeSysfs::FakeSysfs() { fs::create_directories(root_ + "sys"); }

void FakeSysfs::Write(const std::string& path, const std::string& text) {
  const fs::path file = root_ + path;
  fs::create_directories(file.parent_path());
  std::ofstream(file) << text << "\n";
}

void FakeSysfs::Link(const std::string& link, const std::string& target) {
  const fs::path from = root_ + link;
  fs::create_directories(from.parent_path());
  fs::create_symlink(fs::relative(root_ + target, from.parent_path()), from);
}

void FakeSysfs::AddPci(const std::string& path, const std::string& pci_class, int numa_node) {
  const std::string folder = "sys/devices/" + path;
  Write(folder + "/class", pci_class);
  Write(folder + "/vendor", "0x1234");
  Write(folder + "/numa_node", std::to_string(numa_node));
  const std::string address = fs::path(path).filename();
  Link("sys/bus/pci/devices/" + address, folder);
  if (pci_class == "0x030200") gpus_.push_back(address);
}

void FakeSysfs::AddPort(const std::string& device, const std::string& state,
                        const std::string& layer) {
  Write(device + "/ports/1/state", state);
  Write(device + "/ports/1/rate", "400 Gb/sec (4X NDR)");
  Write(device + "/ports/1/link_layer", layer);
}

void FakeSysfs::AddNic(const std::string& name, const std::string& path, int numa_node,
                       const std::string& state, const std::string& below) {
  AddPci(path, "0x020700", numa_node);
  const std::string parent = "sys/devices/" + path + (below.empty() ? "" : "/" + below);
  const std::string device = parent + "/infiniband/" + name;
  AddPort(device, state, "InfiniBand");
  Link(device + "/device", parent);
  Link("sys/class/infiniband/" + name, device);
}

void FakeSysfs::AddSoftNic(const std::string& name, const std::string& netdev) {
  const std::string device = "sys/devices/virtual/infiniband/" + name;
  AddPort(device, "4: ACTIVE", "Ethernet");
  Write(device + "/parent", netdev);
  Link("sys/class/infiniband/" + name, device);
}

void FakeSysfs::AddEightGpusWithNics() {
  for (int i = 0; i < 8; ++i) {
    const int bus = 0x10 + 0x1a * i;
    AddNic("mlx5_" + std::to_string(i), BehindSwitch(bus, 0), i / 4);
    AddGpu(BehindSwitch(bus, 1), i / 4);
  }
  AddNic("mlx5_8", "pci0000:0a/0000:0a:01.0/0000:0b:00.0", 0);
  AddNic("mlx5_9", "pci0000:8a/0000:8a:01.0/0000:8b:00.0", 1);
}

void FakeSysfs::AddPairsBehindSwitches() {
  for (int i = 0; i < 4; ++i) {
    const int bus = 0x10 + 0x30 * i;
    for (int half = 0; half < 2; ++half) {
      AddNic("mlx5_" + std::to_string(2 * i + half), BehindSwitch(bus, half), i / 2);
      AddGpu(BehindSwitch(bus, 2 + half), i / 2);
    }
  }
}

void FakeSysfs::AddFlatGuest(int gpus, int nics) {
  for (int i = 0; i < gpus; ++i) AddGpu("pci0000:00/0000:00:" + Hex(3 + i) + ".0", -1);
  for (int i = 0; i < nics; ++i) {
    AddNic("mlx5_" + std::to_string(i), "pci0000:00/0000:00:" + Hex(0x13 + i) + ".0", -1);
  }
}

}  // namespace gantry::topology
