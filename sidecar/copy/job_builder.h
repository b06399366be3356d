// The copies of one job, made of a plan's segments one after the other: blocks of equal length
// between the same two allocations become one listed segment. One thread.
#pragma once

#include <span>
#include <vector>

#include "sidecar/plan/move_plan.h"
#include "sidecar/worker/channel/copy_pool.h"

namespace gantry::transport {

class JobBuilder {
 public:
  // For up to `segments_max` segments of the plan, which outlives the job.
  void Begin(const MovePlan& plan, worker::GpuMeans means, bool listed, size_t segments_max);
  void Add(const MoveSegment& segment);
  // Runs of one block each; the same as adding their segments.
  void AddBlocks(const BlockPair& pair, std::span<const BlockRun> runs);
  // Valid until the next Begin.
  std::span<const worker::CopySegment> job() const { return job_; }

 private:
  // The listed segment that blocks like this one are added to.
  worker::CopySegment& ListFor(const MoveSegment& block);

  const MovePlan* plan_ = nullptr;
  worker::GpuMeans means_ = worker::GpuMeans::kCopyEngine;
  bool listed_ = false;
  std::vector<worker::CopySegment> job_;
  std::vector<worker::BlockPlaces> places_;  // room for all of a job; keeps its addresses
  size_t place_count_ = 0;                   // of them in use
  uint32_t last_local_ = 0;                  // the allocations of the last segment
  uint32_t last_remote_ = 0;
};

}  // namespace gantry::transport
