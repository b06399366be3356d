// Copies between GPU memory for a worker's copy thread: collects the blocks of a job, gives them to
// the driver in batches, and waits for them. After an error nobody knows what still moves: only the
// end of the process ends that for certain. One thread.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "sidecar/worker/segment_copy.h"

namespace gantry::worker {

class GpuCopier {
 public:
  // REQUIRES that ValidateSegment had nothing against it, memory of GPUs on both sides, and that
  // both stay mapped until Finish. Copies may begin at once.
  Status Add(const CopySegment& segment, const MappedBytes& source, const MappedBytes& destination);
  // Returns when everything that was added has been copied.
  Status Finish();
  bool idle() const { return items_.empty() && lane_ == nullptr; }

 private:
  // The work that one GPU does.
  struct Lane {
    std::shared_ptr<gpu::GpuContext> context;
    std::unique_ptr<gpu::GpuStream> stream;
    std::unique_ptr<gpu::GpuEvent> done;
    bool batches = true;  // the driver has the batched copy
  };

  Result<Lane*> LaneOf(const std::shared_ptr<gpu::GpuContext>& context);
  Status Use(const std::shared_ptr<gpu::GpuContext>& context);
  Status Issue();
  Status Await();

  std::map<const gpu::GpuContext*, Lane> lanes_;
  Lane* lane_ = nullptr;  // that has work
  std::vector<gpu::CopyItem> items_;
};

}  // namespace gantry::worker
