// Copies between memory of GPUs, and to and from the host's, for a worker's copy thread: collects
// the blocks of jobs, gives them to the driver, by copy engines or by a kernel, and tells when a
// job is done; others may follow it meanwhile. After an error nobody knows what still moves, until
// GiveUp has waited for it; where that fails, too, only the end of the process ends it for certain.
// One thread.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "sidecar/worker/process/kernel_list.h"
#include "sidecar/worker/process/segment_copy.h"
#include "sidecar/worker/process/staging_buffer.h"

namespace gantry::worker {

// A job that the GPU was given.
struct GpuJob {
  std::unique_ptr<gpu::GpuEvent> mark;
  uint64_t last_slice = 0;  // of the staging buffer, up to which its bytes are
  GpuMeans means = GpuMeans::kCopyEngine;
};

class GpuCopier {
 public:
  // Makes everything that copies in this context need, which otherwise the first of them does.
  Status Prepare(const std::shared_ptr<gpu::GpuContext>& context);
  // For the job that is being made. REQUIRES that ValidateSegment had nothing against it, memory of
  // a GPU on one side or both, and that both stay mapped until the job is done. Copies may begin at
  // once.
  Status Add(const CopySegment& segment, const MappedBytes& source, const MappedBytes& destination);
  // Likewise one copy of memory that this context has. REQUIRES that Prepare has succeeded.
  Status Add(const gpu::CopyItem& item);
  bool has_job() const { return has_job_; }
  // What was added is a job, and the next one begins. REQUIRES has_job().
  Result<GpuJob> EndJob();
  // Jobs are done in the order of their ends.
  static Result<bool> IsDone(const GpuJob& job) { return job.mark->IsReached(); }
  // Its last step, after which its bytes are where they belong. REQUIRES that it is done.
  Status Finish(GpuJob job);
  // The job that is being made is none any more; of it and of those before nothing moves when this
  // returns.
  Status GiveUp();
  // No job is left: the GPU has nothing to do until the next one begins.
  void Idle();
  // Returns when everything that was added has been copied; the job that is being made goes on.
  Status Drain();

 private:
  gpu::GpuStream& stream() { return *streams_[turn_]; }
  Status Begin(const std::shared_ptr<gpu::GpuContext>& context);
  bool HasKernels();  // loads them when first asked; without them the copy engines do all
  bool HasStaging();  // makes it when first asked; without it the driver copies as it can
  // Between memory of a GPU and the host's: a segment, and one of its blocks.
  Status AddWithHost(const CopySegment& segment, const MappedBytes& source,
                     const MappedBytes& destination);
  Status AddHostBlock(const CopySegment& segment, const MappedBytes& source,
                      const MappedBytes& destination, BlockPlaces place);
  // Blocks at one step from each other; false: they are to be added one by one.
  bool AddRows(const CopySegment& segment, gpu::DeviceAddress from, gpu::DeviceAddress to);
  Status AddItem(const gpu::CopyItem& item, bool by_kernel);
  Status Issue();  // everything that was added
  Status IssueBatch();
  Status CloseSlice();

  // Of the worker's one context, made with the first copy.
  std::shared_ptr<gpu::GpuContext> context_;
  // A job's work is on one of them, the next job's on the next: so one begins while the other ends.
  std::array<std::unique_ptr<gpu::GpuStream>, 3> streams_;
  size_t turn_ = 0;
  bool asked_for_kernels_ = false;
  std::unique_ptr<KernelList> kernels_;  // null: not asked for yet, or the driver has none
  bool asked_for_staging_ = false;
  std::unique_ptr<StagingBuffer> staging_;
  std::vector<std::unique_ptr<gpu::GpuEvent>> marks_;
  bool batches_ = true;  // the driver has the batched copy
  bool rows_ = true;     // likewise the copy of rows
  bool has_job_ = false;
  uint64_t last_slice_ = 0;  // of what was added
  GpuMeans job_means_ = GpuMeans::kCopyEngine;
  std::vector<gpu::CopyItem> items_;  // for the copy engine
  size_t batch_ = 1;                  // so many of them are issued at once
};

}  // namespace gantry::worker
