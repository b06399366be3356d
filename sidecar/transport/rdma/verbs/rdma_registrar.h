// Registers buffers on the RDMA devices, for local transfers and for peers. Outlives its
// registrations. Thread-safe.
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
  // Chooses the devices for a buffer, at least one.
  using Choose = std::function<DeviceSet(const std::vector<memory::NicPiece>& pieces)>;

  // `devices` outlives this. Without `choose` every buffer is registered on all devices.
  explicit RdmaRegistrar(const RdmaDevices& devices, Choose choose = {})
      : devices_(devices), choose_(std::move(choose)) {}

  memory::NicRegistration Register(const std::vector<memory::NicPiece>& pieces,
                                   const wire::Access& access) override;
  size_t chunks(size_t device) const { return chunks_[device]; }  // over all buffers

 private:
  DeviceSet ChoiceFor(const std::vector<memory::NicPiece>& pieces) const {
    return choose_ ? choose_(pieces) : DeviceSet::All();
  }

  const RdmaDevices& devices_;
  const Choose choose_;
  std::array<std::atomic<size_t>, DeviceSet::kMax> chunks_{};  // per device
};

}  // namespace gantry::transport
