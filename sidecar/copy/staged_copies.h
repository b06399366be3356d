// The copies between GPUs and staging memory, as operations of the shm transport: the workers take
// turns between them and the transfers of this node, by priority, and one that is lost is replaced
// once. What has waited for some time goes before all others. Start and the like are thread-safe;
// Poll belongs to the engine's driver.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "lib/base/mutex.h"
#include "sidecar/copy/shm_transport.h"
#include "sidecar/copy/staging_copier.h"

namespace gantry::transport {

class StagedCopies final : public StagingCopier {
 public:
  // `stage`: the staging memory. `wake`: Poll has something to do. `call_at`: calls back at a time,
  // by any thread, as long as this lives.
  StagedCopies(std::shared_ptr<const memory::MappedAllocation> stage, std::function<void()> wake,
               std::function<void(TimePoint, std::function<void()>)> call_at);
  ~StagedCopies() override;  // REQUIRES Close()

  // Once, before the first copy; it lives until Close.
  void RunOn(ShmTransport* copies) EXCLUDES(mutex_);
  // Takes no more, and returns when nothing copies any more: while the driver still runs.
  void Close() EXCLUDES(mutex_);

  Status Usable() const override EXCLUDES(mutex_);
  void Start(StagedCopy copy) override EXCLUDES(mutex_);
  void Abort(const void* owner) override EXCLUDES(mutex_);
  bool Poll() override EXCLUDES(mutex_);

 private:
  struct Running {
    StagedCopy copy;
    uint64_t bytes = 0;
    std::unique_ptr<ShmOperation> operation;
    TimePoint begun;
    TimePoint last_post = TimePoint::max();
    bool hastened = false;  // it has waited for long enough
    bool stopped = false;   // nothing more is posted
    bool ended = false;     // by its end, or by force
  };

  Status Take(StagedCopy* copy) EXCLUDES(mutex_);  // moved from, unless it fails
  bool BeginNew();
  bool EndFinished();
  bool LookAtTimes(TimePoint now);
  void Begin(StagedCopy copy);
  void Finish(Running running);
  std::shared_ptr<const MovePlan> PlanOf(const StagedCopy& copy) const;
  void LookAgain();

  const std::shared_ptr<const memory::MappedAllocation> stage_;
  const std::function<void()> wake_;
  const std::function<void(TimePoint, std::function<void()>)> call_at_;

  mutable Mutex mutex_;
  Condition ended_;
  ShmTransport* copies_ GUARDED_BY(mutex_) = nullptr;
  bool closed_ GUARDED_BY(mutex_) = false;
  size_t unfinished_ GUARDED_BY(mutex_) = 0;
  std::vector<StagedCopy> started_ GUARDED_BY(mutex_);
  std::vector<const void*> aborted_ GUARDED_BY(mutex_);  // owners

  // The driver's.
  ShmTransport* running_on_ = nullptr;
  std::map<uint64_t, Running> running_;
  std::vector<uint64_t> finished_;  // tokens, from the transport
  uint64_t next_token_ = 1;
  TimePoint look_again_ = TimePoint::max();  // when a call that is under way wakes the driver
};

}  // namespace gantry::transport
