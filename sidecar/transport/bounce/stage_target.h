// The owner's side of bounce. Lends slices of its staging memory to peers' sessions, registered on
// the RDMA devices for one session each. Copies between slices and GPU buffers at a session's
// request. Thread-safe; calls block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lib/base/clock.h"
#include "lib/base/mutex.h"
#include "lib/base/result.h"
#include "lib/wire/session_times.h"
#include "lib/wire/stage_types.h"
#include "sidecar/copy/staging_half.h"
#include "sidecar/memory/nic_memory.h"
#include "sidecar/transport/target_buffers.h"

namespace gantry::transport {

struct ResolvedMove;

class StageTarget {
 public:
  struct Limits {
    size_t copies_max = 32;  // at once over all sessions: each occupies a thread of the peer API
    size_t session_copies_max = 8;
    // Bounds of a copy's time, whatever its session requests. The minimum exists because forcibly
    // ending a copy costs its worker. A peer that lost its session relies on the maximum.
    milliseconds copy_time_min{1'000};
    milliseconds copy_time_max = wire::kStageCopyMax;
    milliseconds copy_grace{1'000};  // from a stage's end until its copies are ended by force
  };
  struct Totals {
    size_t stages = 0;
    size_t slices = 0;  // total over all stages
  };

  // Both references outlive this. `half` is the target's, with its allocation. At most half of its
  // slices are lent, a quarter to one session. Enough slices for one tcp request always remain.
  StageTarget(memory::NicRegistrar& nics, StagingHalf& half, const Limits& limits);

  // Fails with the reason why nothing can be lent or copied.
  Status Usable() const;
  // Lends the slices that are free now, within the limits, at most `slices`. kConflict: the session
  // has a stage already; close it first. kResourceExhausted: no slice is free.
  Result<wire::StageGrant> Open(const std::string& session, uint32_t slices) EXCLUDES(mutex_);
  // Copies, and blocks until it is done. After a failure no byte moves any more. `buffers` resolves
  // the buffers that the session may touch.
  Status Copy(const std::string& session, const wire::StagedMove& move, TargetBuffers& buffers)
      EXCLUDES(mutex_);
  // After the return nothing of the stage is registered or copied, and its slices are free.
  // Idempotent. Stage 0: whichever the session has. The caller must prevent new stages of an ended
  // session.
  void Close(const std::string& session, uint64_t stage) EXCLUDES(mutex_);
  void End(const std::string& session) EXCLUDES(mutex_);

  Totals totals() const EXCLUDES(mutex_);

 private:
  // One session's stage. Guarded by mutex_ except where noted.
  struct Stage {
    uint64_t number = 0;  // constant
    SliceLease lease;     // constant until released
    // Used by the thread that opens or ends it.
    std::shared_ptr<const memory::NicMemory> nic_memory;
    std::vector<bool> in_copy;  // parallel to the slices
    size_t copies = 0;
    bool open = false;
    bool ending = false;
  };

  Result<std::shared_ptr<Stage>> Lend(const std::string& session, uint32_t slices) EXCLUDES(mutex_);
  Result<wire::StageGrant> Register(Stage* stage);
  // Marks the slices as used. Returns their offsets in the staging memory, in order.
  Result<std::vector<uint64_t>> BeginCopy(const std::string& session, const wire::StagedMove& move,
                                          std::shared_ptr<Stage>* stage) EXCLUDES(mutex_);
  Status CheckSlices(const Stage& stage, const wire::StagedMove& move) const REQUIRES(mutex_);
  void EndCopy(const wire::StagedMove& move, Stage* stage) EXCLUDES(mutex_);
  Status RunCopy(const wire::StagedMove& move, ResolvedMove resolved, TimePoint end,
                 const Stage* stage);
  // `number` 0: the stage that the session has or is about to have.
  void EndStage(const std::string& session, uint64_t number) EXCLUDES(mutex_);
  void AwaitCopies(MutexLock& lock, const Stage& stage) REQUIRES(mutex_);
  void AwaitGone(MutexLock& lock, const std::string& session, const Stage* stage) REQUIRES(mutex_);
  void Dissolve(const std::string& session, Stage* stage) EXCLUDES(mutex_);

  memory::NicRegistrar& nics_;
  StagingHalf& half_;
  const Limits limits_;
  const size_t lent_max_;
  const size_t session_max_;

  mutable Mutex mutex_;
  Condition changed_;
  std::map<std::string, std::shared_ptr<Stage>> stages_ GUARDED_BY(mutex_);  // by session
  size_t lent_ GUARDED_BY(mutex_) = 0;
  // Counted in lent_: a device failed to deregister them.
  std::vector<SliceLease> lost_ GUARDED_BY(mutex_);
  size_t copies_ GUARDED_BY(mutex_) = 0;
  uint64_t last_number_ GUARDED_BY(mutex_) = 0;
};

}  // namespace gantry::transport
