// Where the bytes of a plan lie, in memory regions of its own buffers here and in chunks there.
// Answers about a byte the same for ever: work requests are counted before they are cut. Immutable;
// thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "sidecar/transport/rdma/rdma_remote_buffer.h"
#include "sidecar/transport/rdma/verbs/memory_region_set.h"
#include "sidecar/transport/rdma/work_cutter.h"

namespace gantry::transport {

class PlanStretches final : public Stretches {
 public:
  // The plan outlives this. What of its local_on_nics is no MemoryRegionSet, and remote targets
  // that are no RdmaRemoteBuffers, have no stretches.
  explicit PlanStretches(const MovePlan& plan);

  LocalStretch Local(uint32_t allocation, uint64_t offset) const override;
  RemoteStretch Remote(uint32_t allocation, uint64_t offset) const override;

  const MemoryRegionSet::Chunk& region(uint32_t number) const { return *regions_[number].chunk; }
  const wire::RdmaChunk& chunk(uint32_t number) const;
  // The devices here and at the peer that have keys for both ends of a work request.
  DeviceSet DevicesHere(const WorkRequest& work) const {
    return regions_[work.local_region].set->devices();
  }
  DeviceSet DevicesThere(const WorkRequest& work) const {
    return buffers_[BufferOf(work.remote_chunk)]->devices();
  }

 private:
  // Bytes [begin, end) of a local allocation that are in one region.
  struct Run {
    uint64_t begin = 0;
    uint64_t end = 0;
    uint64_t address = 0;  // of the first
    uint32_t region = 0;
  };

  struct Region {
    const MemoryRegionSet* set = nullptr;
    const MemoryRegionSet::Chunk* chunk = nullptr;
  };

  void AddLocal(const MovePlan& plan);
  size_t BufferOf(uint32_t chunk) const;  // the remote buffer that it is of

  // Of each local allocation, by where they begin; none overlap.
  std::vector<std::vector<Run>> runs_;
  std::vector<Region> regions_;
  std::vector<const RdmaRemoteBuffer*> buffers_;  // parallel to the plan's remote allocations
  std::vector<uint32_t> first_chunk_;             // likewise: the number of its first chunk
};

}  // namespace gantry::transport
