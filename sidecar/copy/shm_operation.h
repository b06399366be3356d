// One transfer on the shm transport: which segments are posted, done, or to be posted once more
// after a worker died. Owned by the engine's driver.
#pragma once

#include <algorithm>
#include <deque>
#include <vector>

#include "sidecar/copy/shm_transport.h"

namespace gantry::transport {

class ShmOperation final : public Operation {
 public:
  ShmOperation(ShmTransport& transport, std::shared_ptr<const MovePlan> plan, int priority,
               uint64_t token, std::vector<uint64_t>* attention, TimePoint last_post);
  ~ShmOperation() override;

  void Stop() override;
  void Abort() override;
  bool finished() const override { return finished_; }
  const std::optional<Error>& error() const override { return error_; }
  const Progress& progress() const override { return progress_; }
  std::vector<uint32_t> UnfinishedItems() const override;

  int priority() const { return priority_; }
  // What is not posted yet goes before all that waits.
  void Hasten();
  uint64_t token() const { return token_; }
  bool on_gpus() const { return on_gpus_; }      // one side of all of it at least
  bool with_host() const { return with_host_; }  // some of it is the host's
  bool between_gpus() const { return on_gpus_ && !with_host_; }
  // Places of the GPUs whose memory it is among those of the pool, the destination's first.
  const std::vector<int>& gpus() const { return gpus_; }
  const MovePlan& plan() const { return *plan_; }

  bool HasWork() const;
  bool mostly_rows() const {
    const CopyCounts& copies = plan_->segments.copies();
    return copies.rows > 0 && copies.rows >= copies.blocks;
  }
  // What is not posted yet, but for parts that come back.
  uint64_t bytes_left() const { return plan_->bytes - std::min(plan_->bytes, posted_bytes_); }
  // Its segments are added to the job. No more than either limit, but one segment at least where
  // there is room for any.
  PlanPart NextPart(size_t segments_max, uint64_t bytes_max, JobBuilder* job) const;
  void Posted(const PlanPart& part, int worker);
  // Whether it goes on before others of its kind: between GPUs, until it has posted `turn_bytes`
  // since its last turn ended. If not, the next one begins.
  bool KeepsTurn(uint64_t turn_bytes);
  // For the report: why the GPUs copy as they do.
  void SetGpuReason(GpuCopyReason reason) { progress_.gpu_reason = reason; }
  // Nobody can move what is not posted.
  void Refuse(Error error);
  // `lost`: the worker died; the part is posted once more, then the operation fails. `why`: of
  // memory of GPUs, what its job was planned for.
  void Done(const PlanPart& part, int worker, const worker::Completion& completion,
            GpuCopyReason why);

 private:
  void Fail(Error error);
  void FinishIfQuiet();

  ShmTransport& transport_;
  const std::shared_ptr<const MovePlan> plan_;
  int priority_;
  const uint64_t token_;
  std::vector<uint64_t>* const attention_;
  const TimePoint last_post_;  // max: it has no end
  const bool with_host_;
  const bool on_gpus_;
  const std::vector<int> gpus_;
  const uint32_t segment_count_;

  uint32_t next_segment_ = 0;
  uint64_t posted_bytes_ = 0;
  uint64_t turn_began_at_ = 0;  // of posted_bytes_
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
