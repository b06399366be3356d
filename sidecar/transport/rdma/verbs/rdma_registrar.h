// Registers buffers on the devices, for whoever moves them from or to here and for peers. Outlives
// what it registered. Thread-safe.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

#include "sidecar/memory/nic_memory.h"
#include "sidecar/transport/rdma/verbs/memory_region_set.h"
#include "sidecar/transport/rdma/verbs/rdma_devices.h"

namespace gantry::transport {

class RdmaRegistrar final : public memory::NicRegistrar {
 public:
  // On which of the devices a buffer is registered: one at least.
  using Choose = std::function<DeviceSet(const std::vector<memory::NicPiece>& pieces)>;

  // `devices` outlives this. Without a choice all of them have every buffer.
  explicit RdmaRegistrar(const RdmaDevices& devices, Choose choose = {})
      : devices_(devices), choose_(std::move(choose)) {}

  memory::OnNics Register(const std::vector<memory::NicPiece>& pieces,
                          const wire::Access& access) override;
  size_t chunks(size_t device) const { return chunks_[device]; }  // of all buffers

 private:
  DeviceSet ChoiceFor(const std::vector<memory::NicPiece>& pieces) const {
    return choose_ ? choose_(pieces) : DeviceSet::All();
  }

  const RdmaDevices& devices_;
  const Choose choose_;
  std::array<std::atomic<size_t>, DeviceSet::kMax> chunks_{};  // by device
};

}  // namespace gantry::transport
