// Which NICs carry the bytes of a GPU or of a NUMA node's host memory: all of the nearest ones, in
// an order that differs from GPU to GPU, so that GPUs with the same NICs begin with different ones.
// Immutable; thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lib/base/result.h"
#include "lib/topology/nic_distance.h"
#include "lib/topology/sysfs_devices.h"

namespace gantry::topology {

// An operator's, by names of devices.
struct NicRules {
  std::vector<std::string> use = {};  // exactly these, in this order, however far; empty: no rule
  std::vector<std::string> exclude = {};  // never these, such as those of a storage network
};

struct NicChoice {
  std::vector<std::string> names;  // of at least one device; the first one is for what needs one
  NicDistance distance = NicDistance::kUnknown;  // of the farthest of them
  std::string reason;  // "GPU 0000:1b:00.0: 2 of 8 NICs, behind the same PCI switch"
};

class NicChooser {
 public:
  // `nics`: those that can be used; what has no active port is passed over. `gpus`: the addresses
  // of all of the machine's, also of those that this process does not use.
  NicChooser(const std::vector<RdmaDevice>& nics, const std::vector<std::string>& gpus,
             NicRules rules, std::string root = "/");

  Result<NicChoice> ForGpu(std::string_view pci_address) const;
  Result<NicChoice> ForHostMemory(int numa_node) const;  // -1: unknown

 private:
  struct Nic {
    std::string name;
    PciPlace place;
  };
  using Nics = std::vector<const Nic*>;

  Result<NicChoice> Choose(const PciPlace& target, const std::string& target_name) const;
  Result<Nics> Named() const;                  // by the operator
  Nics Nearest(const PciPlace& target) const;  // all at the smallest distance
  size_t BeginOf(const PciPlace& target, const Nics& nearest) const;
  Error NoneThere() const;

  const NicRules rules_;
  const std::string root_;
  std::vector<std::string> inactive_;  // without an active port
  std::vector<Nic> nics_;              // in the order of PCI addresses, as are the GPUs
  std::vector<PciPlace> gpus_;
};

}  // namespace gantry::topology
