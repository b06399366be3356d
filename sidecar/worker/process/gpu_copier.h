// Copies between GPU memory and other memory for a worker's copy thread. Collects the blocks of
// jobs, passes them to copy engines or a kernel, and reports finished jobs. Later jobs may run
// meanwhile. After an error copies may still run until GiveUp has waited for them. If that fails
// too, only the end of the process stops them. Used by one thread.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "sidecar/worker/process/kernel_list.h"
#include "sidecar/worker/process/segment_copy.h"
#include "sidecar/worker/process/staging_buffer.h"

namespace gantry::worker {

// A job that was passed to the GPU.
struct GpuJob {
  std::unique_ptr<gpu::GpuEvent> mark;
  uint64_t last_slice = 0;  // number of the staging buffer's last slice with its bytes
  GpuMeans means = GpuMeans::kCopyEngine;
};

class GpuCopier {
 public:
  // Creates everything that copies in this context need, so that the first copy does not.
  Status Prepare(const std::shared_ptr<gpu::GpuContext>& context);
  // Adds a segment to the current job; copies may begin at once. REQUIRES that ValidateSegment
  // accepted it and that a side is GPU memory. Both sides must stay mapped until the job is done.
  Status Add(const CopySegment& segment, const MappedBytes& source, const MappedBytes& destination);
  // Adds a copy of memory that this context has. REQUIRES that Prepare has succeeded.
  Status Add(const gpu::CopyItem& item);
  bool has_job() const { return has_job_; }
  // Completes the current job; the next one begins. REQUIRES has_job().
  Result<GpuJob> EndJob();
  // Jobs are done in the order of EndJob.
  static Result<bool> IsDone(const GpuJob& job) { return job.mark->IsReached(); }
  // The last step of a job: afterwards its bytes are in place. REQUIRES IsDone.
  Status Finish(GpuJob job);
  // Drops the current job. Returns when no byte of it or of earlier jobs can move any more.
  Status GiveUp();
  // Call when no job is left.
  void Idle();
  // Call when no job is left: the next batch starts small again.
  Status Drain();

 private:
  gpu::GpuStream& stream() { return *streams_[turn_]; }
  Status Begin(const std::shared_ptr<gpu::GpuContext>& context);
  bool HasKernels();  // loads them at the first call; without them copy engines do all
  bool HasStaging();  // creates it at the first call; without it the driver copies directly
  // Between GPU and host memory: a segment, and one of its blocks.
  Status AddWithHost(const CopySegment& segment, const MappedBytes& source,
                     const MappedBytes& destination);
  Status AddHostBlock(const CopySegment& segment, const MappedBytes& source,
                      const MappedBytes& destination, BlockPlaces place);
  // Adds blocks at constant steps as rows. False: add them one by one.
  bool AddRows(const CopySegment& segment, gpu::DeviceAddress from, gpu::DeviceAddress to);
  Status AddItem(const gpu::CopyItem& item, bool by_kernel);
  Status Issue();  // issues everything added
  Status IssueBatch();
  Status CloseSlice();

  // The worker's one context, set with the first copy.
  std::shared_ptr<gpu::GpuContext> context_;
  // Jobs alternate between streams, so that one starts while another ends.
  std::array<std::unique_ptr<gpu::GpuStream>, 3> streams_;
  size_t turn_ = 0;
  bool asked_for_kernels_ = false;
  std::unique_ptr<KernelList> kernels_;  // null: not requested yet, or the driver has none
  bool asked_for_staging_ = false;
  std::unique_ptr<StagingBuffer> staging_;
  std::vector<std::unique_ptr<gpu::GpuEvent>> marks_;
  bool batches_ = true;  // the driver supports batched copies
  bool rows_ = true;     // the driver supports strided copies
  bool has_job_ = false;
  uint64_t last_slice_ = 0;  // of the blocks added
  GpuMeans job_means_ = GpuMeans::kCopyEngine;
  std::vector<gpu::CopyItem> items_;  // for the copy engines
  size_t batch_ = 1;                  // number issued at once
};

}  // namespace gantry::worker
