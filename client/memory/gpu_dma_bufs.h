// Dma-bufs of memory of GPUs, by which RDMA devices reach it: exported by its owner, as nobody else
// can. A buffer does without: what goes wrong is kept as the reason. Thread-safe.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "client/memory/gpu_resolver.h"

namespace gantry::client {

// The whole pages around an allocation, and where it begins in them. Fails where they wrap around.
struct PagesAround {
  gpu::AddressRange pages;
  uint64_t offset = 0;
};
Result<PagesAround> WholePages(const gpu::AddressRange& allocation, uint64_t page_bytes);

// One of each allocation, whole, filled in with its token or with why there is none. No descriptor
// stays here: it would keep the memory alive. REQUIRES allocations that nobody else uses yet.
void HandOverDmaBufs(std::span<const std::shared_ptr<GpuAllocation>> allocations,
                     const GpuResolver::HandOver& hand_over);

}  // namespace gantry::client
