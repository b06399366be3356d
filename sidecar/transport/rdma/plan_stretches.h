// Where the bytes of a plan lie, in memory regions here and in chunks there; keeps both. Answers
// about a byte the same for ever, whatever is registered meanwhile: work requests are counted
// before they are cut. Used by one thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "sidecar/transport/rdma/rdma_registrar.h"
#include "sidecar/transport/rdma/rdma_remote_buffer.h"
#include "sidecar/transport/rdma/work_cutter.h"

namespace gantry::transport {

class PlanStretches final : public Stretches {
 public:
  // Both outlive this. Remote targets that are no RdmaRemoteBuffers have no stretches.
  PlanStretches(const MovePlan& plan, const RdmaRegistrar* registrar);

  LocalStretch Local(uint32_t allocation, uint64_t offset) const override;
  RemoteStretch Remote(uint32_t allocation, uint64_t offset) const override;

  const MemoryRegionSet::Chunk& region(uint32_t number) const {
    return regions_[number].set->list()[regions_[number].chunk];
  }
  const wire::RdmaChunk& chunk(uint32_t number) const;
  // The devices here and at the peer that have keys for both ends of a work request.
  DeviceSet DevicesHere(const WorkRequest& work) const {
    return regions_[work.local_region].set->devices();
  }
  DeviceSet DevicesThere(const WorkRequest& work) const {
    return buffers_[BufferOf(work.remote_chunk)]->devices();
  }

 private:
  struct Region {
    std::shared_ptr<const MemoryRegionSet> set;
    size_t chunk = 0;
  };

  // Bytes of an allocation that are in one region.
  struct Run {
    uint64_t address = 0;
    uint64_t length = 0;
    uint32_t region = 0;
  };

  size_t BufferOf(uint32_t chunk) const;  // the remote buffer that it is of

  const MovePlan& plan_;
  const RdmaRegistrar* const registrar_;
  std::vector<const RdmaRemoteBuffer*> buffers_;  // parallel to the plan's remote allocations
  std::vector<uint32_t> first_chunk_;             // likewise: the number of its first chunk
  // What was asked for so far, of each local allocation, by where it begins; none overlap.
  mutable std::vector<std::map<uint64_t, Run>> known_;
  // Regions are numbered in the order in which they were found.
  mutable std::vector<Region> regions_;
  mutable std::unordered_map<const MemoryRegionSet::Chunk*, uint32_t> numbers_;
};

}  // namespace gantry::transport
