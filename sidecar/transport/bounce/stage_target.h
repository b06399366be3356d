// The owner's side of bounce: lends slices of its staging memory to peers' sessions, registered on
// the RDMA devices for that session alone, and copies between them and buffers on GPUs as the
// sessions ask. Thread-safe; calls block.
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
#include "lib/wire/stage_types.h"
#include "sidecar/copy/staging_half.h"
#include "sidecar/memory/nic_memory.h"
#include "sidecar/transport/target_buffers.h"

namespace gantry::transport {

struct ResolvedMove;

class StageTarget {
 public:
  struct Limits {
    size_t copies_max = 32;  // at once, of all sessions: each has a thread of the peer API
    size_t session_copies_max = 8;
    // What a copy has at least, whatever its session says: one that is ended by force costs its
    // worker. And at most: a peer that lost the session counts on it.
    milliseconds copy_time_min{1'000};
    milliseconds copy_time_max{2'000};
    milliseconds copy_grace{1'000};  // after a stage's end, until its copies are ended by force
  };
  struct Totals {
    size_t stages = 0;
    size_t slices = 0;  // that they have together
  };

  // Both outlive this. `half`: the target's, with its allocation. At most half of its slices are
  // lent, to one session a quarter, and never so many that a request of tcp has too few.
  StageTarget(memory::NicRegistrar& nics, StagingHalf& half, const Limits& limits);

  // Whether stages can be lent and copied to and from; the error says why not.
  Status Usable() const;
  // As many slices as are free at once and within the limits, `slices` at most. kConflict: the
  // session has a stage, which is closed before there is another one. kResourceExhausted: none is
  // free.
  Result<wire::StageGrant> Open(const std::string& session, uint32_t slices) EXCLUDES(mutex_);
  // The bytes are where they belong, or the error says why not, and then none of them moves any
  // more. `buffers`: what the session may touch.
  Status Copy(const std::string& session, const wire::StagedMove& move, TargetBuffers& buffers)
      EXCLUDES(mutex_);
  // When these return nothing of the stage is registered or copied, and its slices are back.
  // Idempotent. Stage 0: whichever the session has. That a session that ended opens no other is
  // left to whoever knows of sessions.
  void Close(const std::string& session, uint64_t stage) EXCLUDES(mutex_);
  void End(const std::string& session) EXCLUDES(mutex_);

  Totals totals() const EXCLUDES(mutex_);

 private:
  // One session's. What is not marked is under the mutex.
  struct Stage {
    uint64_t number = 0;                               // constant
    SliceLease lease;                                  // constant until it goes
    std::shared_ptr<const memory::NicMemory> on_nics;  // of whoever opens or ends it
    std::vector<bool> in_copy;                         // parallel to the slices
    size_t copies = 0;
    bool open = false;
    bool ending = false;
  };

  Result<std::shared_ptr<Stage>> Lend(const std::string& session, uint32_t slices) EXCLUDES(mutex_);
  Result<wire::StageGrant> Register(Stage* stage);
  // Marks the slices. Where they begin in the staging memory, in their order.
  Result<std::vector<uint64_t>> BeginCopy(const std::string& session, const wire::StagedMove& move,
                                          std::shared_ptr<Stage>* stage) EXCLUDES(mutex_);
  Status CheckSlices(const Stage& stage, const wire::StagedMove& move) const REQUIRES(mutex_);
  void EndCopy(const wire::StagedMove& move, Stage* stage) EXCLUDES(mutex_);
  Status RunCopy(const wire::StagedMove& move, ResolvedMove resolved, TimePoint end,
                 const Stage* stage);
  // That stage, or with 0 whichever the session has or is about to have.
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
  std::vector<SliceLease> lost_ GUARDED_BY(mutex_);  // of lent_: a device still has them
  size_t copies_ GUARDED_BY(mutex_) = 0;
  uint64_t last_number_ GUARDED_BY(mutex_) = 0;
};

}  // namespace gantry::transport
