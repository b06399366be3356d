// Which devices a buffer is registered on: those nearest to its GPU, or to the NUMA node that its
// bytes lie on, and where sysfs knows no difference all of them. While the nearest have no active
// port, the nearest of those that have one besides. For memory of GPUs those count that take its
// dma-bufs. Thread-safe.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "lib/base/mutex.h"
#include "lib/topology/nic_choice.h"
#include "sidecar/memory/nic_memory.h"
#include "sidecar/transport/rdma/verbs/memory_node.h"
#include "sidecar/transport/rdma/verbs/rdma_devices.h"

namespace gantry::transport {

class NicAssignment {
 public:
  // What it asks of the machine.
  struct Machine {
    // The PCI address of a GPU by its UUID; empty: unknown.
    std::function<std::string(const std::string& uuid)> address_of_gpu;
    std::function<int(const std::vector<std::span<const std::byte>>& memory)> node_of_memory =
        MemoryNodeOf;
    std::string root = "/";  // of sysfs
  };

  // `devices` outlives this.
  NicAssignment(const RdmaDevices& devices, Machine machine);

  // Of one device at least.
  DeviceSet For(const std::vector<memory::NicPiece>& pieces) const EXCLUDES(mutex_);
  DeviceSet ForGpu(const std::string& uuid) const EXCLUDES(mutex_);
  DeviceSet ForHostMemory(int numa_node) const EXCLUDES(mutex_);  // -1: unknown

  // Logs, ahead of the first buffers, what serves these GPUs and the nodes. Each choice is logged
  // when it is made.
  void Tell(const std::vector<std::string>& gpus) const;

 private:
  using Chooser = topology::NicChooser;
  using Ask = std::function<Result<topology::NicChoice>(const Chooser& chooser)>;

  std::unique_ptr<const Chooser> ChooserOf(DeviceSet devices) const;
  // Among these.
  DeviceSet Choose(const std::string& target, DeviceSet among, const Ask& ask) const
      EXCLUDES(mutex_);
  // Those that take dma-bufs of all these GPUs, as far as that is known.
  DeviceSet Taking(const std::set<std::string>& gpus) const;
  DeviceSet SetOf(const std::vector<std::string>& names) const;
  int NodeOf(const std::vector<memory::NicPiece>& pieces) const;

  const RdmaDevices& devices_;
  const Machine machine_;
  const std::vector<topology::RdmaDevice> nics_;  // in the order of the devices

  mutable Mutex mutex_;
  mutable DeviceSet up_ GUARDED_BY(mutex_);  // that the rest is of
  // By what they are for, and among which.
  mutable std::map<std::pair<std::string, DeviceSet>, DeviceSet> chosen_ GUARDED_BY(mutex_);
};

}  // namespace gantry::transport
