// One transfer by copy workers: segments posted, done, or to be reposted after a worker died.
// Used by the driver.
#pragma once

#include <algorithm>
#include <deque>
#include <vector>

#include "sidecar/copy/copy_scheduler.h"

namespace gantry::transport {

class CopyOperation final : public Operation {
 public:
  CopyOperation(CopyScheduler& scheduler, std::shared_ptr<const MovePlan> plan, int priority,
                uint64_t token, std::vector<uint64_t>* ready_tokens, TimePoint last_post);
  ~CopyOperation() override;

  void Stop() override;
  void Abort() override;
  bool finished() const override { return finished_; }
  const std::optional<Error>& error() const override { return error_; }
  const Progress& progress() const override { return progress_; }
  std::vector<uint32_t> UnfinishedItems() const override;

  int priority() const { return priority_; }
  // Posts the rest before all other waiting work.
  void Hasten();
  uint64_t token() const { return token_; }
  bool on_gpus() const { return on_gpus_; }      // all of it has GPU memory on at least one side
  bool with_host() const { return with_host_; }  // some of it has host memory on a side
  bool between_gpus() const { return on_gpus_ && !with_host_; }
  // Indices of the involved GPUs in the pool, the destination's first.
  const std::vector<int>& gpus() const { return gpus_; }
  const MovePlan& plan() const { return *plan_; }

  bool HasWork() const;
  bool mostly_rows() const {
    const CopyCounts& copies = plan_->segments.copies();
    return copies.rows > 0 && copies.rows >= copies.blocks;
  }
  // Bytes that were never posted.
  uint64_t bytes_left() const { return plan_->bytes - std::min(plan_->bytes, posted_bytes_); }
  // Adds its next segments to the job, within both limits. Adds at least one if there is any room.
  PlanPart NextPart(size_t segments_max, uint64_t bytes_max, JobBuilder* job) const;
  void Posted(const PlanPart& part, int worker);
  // True while a transfer between GPUs goes on before others of its kind. Its turn ends after
  // `turn_bytes` posted bytes; the next turn then begins.
  bool KeepsTurn(uint64_t turn_bytes);
  // Records why the GPUs copy as they do, for the report.
  void SetGpuReason(GpuCopyReason reason) { progress_.gpu_reason = reason; }
  // Fails it: no worker can copy the rest.
  void Refuse(Error error);
  // Completes a part. A part that a dying worker lost is reposted once; then the operation fails.
  // `why` is the reason that the job was planned with, for GPU memory.
  void Done(const PlanPart& part, int worker, const worker::Completion& completion,
            GpuCopyReason why);

 private:
  void Fail(Error error);
  void FinishIfQuiet();

  CopyScheduler& scheduler_;
  const std::shared_ptr<const MovePlan> plan_;
  int priority_;
  const uint64_t token_;
  std::vector<uint64_t>* const ready_tokens_;
  const TimePoint last_post_;  // max: no limit
  const bool with_host_;
  const bool on_gpus_;
  const std::vector<int> gpus_;
  const uint32_t segment_count_;

  uint32_t next_segment_ = 0;
  uint64_t posted_bytes_ = 0;
  uint64_t turn_began_at_ = 0;  // value of posted_bytes_
  std::deque<PlanPart> again_;
  std::vector<bool> segment_done_;
  std::vector<bool> worker_used_;
  size_t inflight_ = 0;
  bool stopped_ = false;
  bool finished_ = false;
  std::optional<Error> error_;
  Progress progress_;
};

}  // namespace gantry::transport
