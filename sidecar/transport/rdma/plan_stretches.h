// The location of a plan's bytes: in memory regions of its local buffers, and in chunks of remote
// ones. The answer for a byte never changes, since work requests are counted before they are cut.
// Immutable; thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "sidecar/transport/rdma/rdma_remote_buffer.h"
#include "sidecar/transport/rdma/verbs/memory_region_set.h"
#include "sidecar/transport/rdma/work_cutter.h"

namespace gantry::transport {

class PlanStretches final : public Stretches {
 public:
  // The plan outlives this. Bytes have no stretch if their registration is no MemoryRegionSet, or
  // their target no RdmaRemoteBuffer.
  explicit PlanStretches(const MovePlan& plan);

  LocalStretch Local(uint32_t allocation, uint64_t offset) const override;
  RemoteStretch Remote(uint32_t allocation, uint64_t offset) const override;

  const MemoryRegionSet::Chunk& region(uint32_t number) const { return *regions_[number].chunk; }
  const wire::RdmaChunk& chunk(uint32_t number) const;
  // Local and remote devices that have keys for a work request.
  DeviceSet DevicesHere(const WorkRequest& work) const {
    return regions_[work.local_region].set->devices();
  }
  DeviceSet DevicesThere(const WorkRequest& work) const {
    return buffers_[BufferOf(work.remote_chunk)]->devices();
  }

 private:
  // Bytes [begin, end) of a local allocation within one region.
  struct Run {
    uint64_t begin = 0;
    uint64_t end = 0;
    uint64_t address = 0;  // of the first byte
    uint32_t region = 0;
  };

  struct Region {
    const MemoryRegionSet* set = nullptr;
    const MemoryRegionSet::Chunk* chunk = nullptr;
  };

  void AddLocal(const MovePlan& plan);
  size_t BufferOf(uint32_t chunk) const;  // returns the remote buffer of the chunk

  // Per local allocation, sorted by begin, without overlap.
  std::vector<std::vector<Run>> runs_;
  std::vector<Region> regions_;
  std::vector<const RdmaRemoteBuffer*> buffers_;  // parallel to the plan's remote allocations
  std::vector<uint32_t> first_chunk_;  // parallel to buffers_: the number of its first chunk
};

}  // namespace gantry::transport
