// Chooses the NICs for a GPU or for a NUMA node's host memory: all of the nearest. GPUs that share
// NICs start with different ones. Immutable; thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lib/base/result.h"
#include "lib/topology/nic_distance.h"
#include "lib/topology/sysfs_devices.h"

namespace gantry::topology {

// Set by an operator, by device names.
struct NicRules {
  // Exactly these, in this order, at any distance; empty: no rule.
  std::vector<std::string> use = {};
  std::vector<std::string> exclude = {};  // never these, for example of a storage network
};

struct NicChoice {
  std::vector<std::string> names;                // at least one; single-NIC uses take the first
  NicDistance distance = NicDistance::kUnknown;  // the farthest one's
  std::string reason;  // "GPU 0000:1b:00.0: 2 of 8 NICs, behind the same PCI switch"
};

class NicChooser {
 public:
  // `nics` are the usable devices; those without an active port are ignored. `gpus` are the
  // addresses of all GPUs of the machine, also of those that this process does not use.
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
  Result<Nics> Named() const;                  // named by the operator
  Nics Nearest(const PciPlace& target) const;  // all at the smallest distance
  size_t BeginOf(const PciPlace& target, const Nics& nearest) const;
  Error NoneThere() const;

  const NicRules rules_;
  const std::string root_;
  std::vector<std::string> inactive_;  // without an active port
  std::vector<Nic> nics_;              // by PCI address, as gpus_
  std::vector<PciPlace> gpus_;
};

}  // namespace gantry::topology
