// A temporary folder that looks like the sysfs of some machine: real folders below sys/devices and
// the symbolic links that lead there. Removed with the object. Used by one thread.
#pragma once

#include <string>
#include <vector>

#include "tests/fakes/test_folder.h"

namespace gantry::topology {

class FakeSysfs {
 public:
  FakeSysfs();

  const std::string& root() const { return root_; }  // ends with a slash

  // `path` from the root; with a line end.
  void Write(const std::string& path, const std::string& text);
  // A device and the bridges before it, "pci0000:15/0000:15:01.0/0000:16:00.0": the last component
  // is its address. `pci_class` "0x030200".
  void AddPci(const std::string& path, const std::string& pci_class, int numa_node);
  void AddGpu(const std::string& path, int numa_node) { AddPci(path, "0x030200", numa_node); }
  // A PCI device with one port; `below` it, "virtio0", may be what it really belongs to.
  void AddNic(const std::string& name, const std::string& path, int numa_node,
              const std::string& state = "4: ACTIVE", const std::string& below = "");
  // A device of no bus over this network interface, as soft-RoCE makes it.
  void AddSoftNic(const std::string& name, const std::string& netdev);

  // Two sockets, eight GPUs gpu(0..7), each with a NIC "mlx5_<i>" behind one switch with it; at
  // each socket also a NIC for storage, "mlx5_8" and "mlx5_9", at a host bridge of its own.
  void AddEightGpusWithNics();
  // The same, but two GPUs and two NICs behind each of four switches.
  void AddPairsBehindSwitches();
  // A guest: so many GPUs and NICs, all on one bus, of no known node.
  void AddFlatGuest(int gpus, int nics);

  const std::vector<std::string>& gpus() const { return gpus_; }  // addresses, as they were added

 private:
  void Link(const std::string& link, const std::string& target);
  void AddPort(const std::string& device, const std::string& state, const std::string& layer);

  const testing::TestFolder folder_;
  const std::string root_ = folder_.path() + "/";
  std::vector<std::string> gpus_;
};

}  // namespace gantry::topology
