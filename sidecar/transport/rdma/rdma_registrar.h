// Registers buffers on the devices, for whoever moves them from or to here and for peers. Outlives
// what it registered. Thread-safe.
#pragma once

#include <atomic>
#include <cstddef>
#include <vector>

#include "sidecar/memory/nic_memory.h"
#include "sidecar/transport/rdma/memory_region_set.h"
#include "sidecar/transport/rdma/rdma_devices.h"

namespace gantry::transport {

class RdmaRegistrar final : public memory::NicRegistrar {
 public:
  // `devices` outlives this.
  explicit RdmaRegistrar(const RdmaDevices& devices) : devices_(devices) {}

  memory::OnNics Register(const std::vector<memory::NicPiece>& pieces,
                          const wire::Access& access) override;
  size_t chunks() const { return chunks_; }  // of all buffers, on one device

 private:
  const RdmaDevices& devices_;
  std::atomic<size_t> chunks_ = 0;
};

}  // namespace gantry::transport
