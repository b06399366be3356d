// Chooses the devices for a buffer: the nearest to its GPU, or to the NUMA node of its memory.
// Without topology in sysfs it chooses all. If the nearest have no active port, it adds the nearest
// that have one. For GPU memory only devices that accept its dma-bufs count. Thread-safe.
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
  // The machine's properties that it needs.
  struct Machine {
    // Returns the PCI address of the GPU with this UUID; empty: unknown.
    std::function<std::string(const std::string& uuid)> address_of_gpu;
    std::function<int(const std::vector<std::span<const std::byte>>& memory)> node_of_memory =
        MemoryNodeOf;
    std::string root = "/";  // parent of sysfs
  };

  // `devices` outlives this.
  NicAssignment(const RdmaDevices& devices, Machine machine);

  // Returns at least one device.
  DeviceSet For(const std::vector<memory::NicPiece>& pieces) const EXCLUDES(mutex_);
  DeviceSet ForGpu(const std::string& uuid) const EXCLUDES(mutex_);
  DeviceSet ForHostMemory(int numa_node) const EXCLUDES(mutex_);  // -1: unknown

  // Logs the choices for these GPUs and for the NUMA nodes in advance. Every choice is logged when
  // made.
  void LogChoices(const std::vector<std::string>& gpus) const;

 private:
  using Chooser = topology::NicChooser;
  using ChooseFrom = std::function<Result<topology::NicChoice>(const Chooser& chooser)>;

  std::unique_ptr<const Chooser> ChooserOf(DeviceSet devices) const;
  // Chooses from `among` only.
  DeviceSet Choose(const std::string& target, DeviceSet among, const ChooseFrom& choose) const
      EXCLUDES(mutex_);
  // Returns the devices that accept dma-bufs of all these GPUs, as far as known.
  DeviceSet Taking(const std::set<std::string>& gpus) const;
  DeviceSet SetOf(const std::vector<std::string>& names) const;
  int NodeOf(const std::vector<memory::NicPiece>& pieces) const;

  const RdmaDevices& devices_;
  const Machine machine_;
  const std::vector<topology::RdmaDevice> nics_;  // in the order of devices_

  mutable Mutex mutex_;
  mutable DeviceSet up_ GUARDED_BY(mutex_);  // the devices that were up when chosen_ was filled
  // Keys: the target, and the devices to choose from.
  mutable std::map<std::pair<std::string, DeviceSet>, DeviceSet> chosen_ GUARDED_BY(mutex_);
};

}  // namespace gantry::transport
