// Copies between GPUs and staging memory, as operations of the copy scheduler. Workers alternate
// between them and this node's transfers, by priority. A lost copy is repeated once. After some
// waiting a copy goes before all others. Thread-safe; only the driver calls Poll.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "lib/base/mutex.h"
#include "sidecar/copy/copy_scheduler.h"
#include "sidecar/copy/staging_copier.h"

namespace gantry::transport {

class StagedCopies final : public StagingCopier {
 public:
  // `copies` outlives this. `stage` is the staging memory. `wake` signals that Poll has work.
  // `call_at` calls back at a time, on any thread, while this lives.
  StagedCopies(CopyScheduler& copies, std::shared_ptr<const memory::MappedAllocation> stage,
               std::function<void()> wake,
               std::function<void(TimePoint, std::function<void()>)> call_at);
  ~StagedCopies() override;  // REQUIRES Close()

  // Accepts no more copies, and returns when none is running. The driver must still run.
  void Close() EXCLUDES(mutex_);

  Status Usable(wire::MemoryKind kind) const override EXCLUDES(mutex_);
  void Start(StagedCopy copy) override EXCLUDES(mutex_);
  void Abort(const void* owner) override EXCLUDES(mutex_);
  bool Poll() override EXCLUDES(mutex_);

 private:
  struct Running {
    StagedCopy copy;
    uint64_t bytes = 0;
    std::unique_ptr<CopyOperation> operation;
    TimePoint begun;
    TimePoint last_post = TimePoint::max();
    bool hastened = false;  // it has waited long enough
    bool stopped = false;   // nothing more is posted
    bool ended = false;     // past its end, or aborted
  };

  Status Take(StagedCopy* copy) EXCLUDES(mutex_);  // moves from *copy unless it fails
  bool BeginNew();
  bool EndFinished();
  bool LookAtTimes(TimePoint now);
  void Begin(StagedCopy copy);
  void Finish(Running running);
  std::shared_ptr<const MovePlan> PlanOf(const StagedCopy& copy) const;
  void LookAgain();

  CopyScheduler& copies_;
  const std::shared_ptr<const memory::MappedAllocation> stage_;
  const std::function<void()> wake_;
  const std::function<void(TimePoint, std::function<void()>)> call_at_;

  mutable Mutex mutex_;
  Condition ended_;
  bool closed_ GUARDED_BY(mutex_) = false;
  size_t unfinished_ GUARDED_BY(mutex_) = 0;
  std::vector<StagedCopy> started_ GUARDED_BY(mutex_);
  std::vector<const void*> aborted_ GUARDED_BY(mutex_);  // their owners

  // Used by the driver.
  std::map<uint64_t, Running> running_;
  std::vector<uint64_t> finished_;  // tokens reported by the scheduler
  uint64_t next_token_ = 1;
  TimePoint look_again_ = TimePoint::max();  // when a scheduled call wakes the driver
};

}  // namespace gantry::transport
