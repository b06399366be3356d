// Copies between GPU memory for a worker's copy thread: collects the blocks of a job, gives them to
// the driver in batches, and waits for them. After an error nobody knows what still moves: only the
// end of the process ends that for certain. One thread.
#pragma once

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
  bool idle() const { return !busy_; }

 private:
  Status Begin(const std::shared_ptr<gpu::GpuContext>& context);
  Status Issue();
  Status Await();

  // Of the worker's one context, made with the first copy.
  std::shared_ptr<gpu::GpuContext> context_;
  std::unique_ptr<gpu::GpuStream> stream_;
  std::unique_ptr<gpu::GpuEvent> done_;
  bool batches_ = true;  // the driver has the batched copy
  bool busy_ = false;    // something was added since the last Finish
  std::vector<gpu::CopyItem> items_;
};

}  // namespace gantry::worker
