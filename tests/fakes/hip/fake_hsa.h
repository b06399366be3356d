// What libamdhip64 of the fake hands to the HSA library below it, which has nothing of its own: the
// memory is the former's. Set once.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "lib/gpu/hip/hip_abi.h"

namespace gantry::fake_hip {

struct HsaCalls {
  gpu::hsa::Status (*export_dma_buf)(const void* address, size_t bytes, int* fd, uint64_t* offset);
  gpu::hsa::Status (*pointer_info)(const void* address, gpu::hsa::PointerInfo* info);
  bool has_dma_bufs;
};

// Null until the process uses HIP.
extern std::atomic<const HsaCalls*> begun;

}  // namespace gantry::fake_hip

// When the process begins to use HIP.
extern "C" void fake_hsa_begin(const gantry::fake_hip::HsaCalls* calls);
