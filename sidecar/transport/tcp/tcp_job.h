// One transfer over tcp, as its peer's streams see it: cuts the plan into requests, and knows what
// is under way, done, to be sent again, or in doubt. Shared by the engine's driver and io threads.
// Thread-safe.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lib/base/mutex.h"
#include "sidecar/plan/block_cursor.h"
#include "sidecar/plan/segment_tally.h"
#include "sidecar/transport/tcp/channel/scatter_list.h"
#include "sidecar/transport/tcp/channel/staged_payload.h"
#include "sidecar/transport/tcp/channel/tcp_frame.h"
#include "sidecar/transport/transport.h"

namespace gantry::transport {

class TcpJob;
class TcpOperation;

// A part of a job that one request moves.
struct MovePart {
  std::shared_ptr<TcpJob> job;
  RequestBody body;
  ScatterList local;
  // Where some of the local bytes lie on GPUs: `local` is empty until this is placed.
  std::shared_ptr<StagedPayload> staged;
  std::vector<SegmentTally::Piece> pieces;
  bool retried = false;
};

class TcpJob : public std::enable_shared_from_this<TcpJob> {
 public:
  // `local`: the bytes of each of the plan's local allocations, none of those on GPUs, for which
  // there is `staging`. `attend` is called from any thread when the job ended or failed.
  struct Setup {
    std::shared_ptr<const MovePlan> plan;
    std::vector<std::span<std::byte>> local;
    StagingHalf* staging = nullptr;  // null: all of it is the host's
    int priority = 0;
    uint64_t token = 0;
    uint64_t part_bytes = 0;
    std::function<void(std::shared_ptr<TcpJob>)> attend;
    std::function<void(TimePoint, std::function<void()>)> call_at;
  };
  explicit TcpJob(Setup setup);

  int priority() const { return setup_.priority; }
  uint64_t token() const { return setup_.token; }
  bool is_write() const { return setup_.plan->operation == wire::Operation::kWrite; }
  uint64_t part_bytes() const { return setup_.part_bytes; }
  uint64_t bytes() const { return setup_.plan->bytes; }
  const MovePlan& plan() const { return *setup_.plan; }

  // What to ask for next; none when nothing is left to issue. `stream`: who asks; it is
  // only counted.
  std::optional<MovePart> Take(const void* stream) EXCLUDES(mutex_);
  bool HasWork() const EXCLUDES(mutex_);
  // Nothing of it is to be sent any more.
  bool stopped() const EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return stopped_;
  }
  void Done(const MovePart& part) EXCLUDES(mutex_);
  // Nothing of it moves any more, or (a write) nothing moves after `in_doubt_until`. It is sent
  // once more, unless it was already; `innocent`: that does not count as an attempt.
  void Lost(MovePart part, const Error& why, TimePoint in_doubt_until, bool innocent)
      EXCLUDES(mutex_);
  // It was refused: so is the job.
  void Refused(const MovePart& part, Error why) EXCLUDES(mutex_);
  void Fail(Error why) EXCLUDES(mutex_);
  void Stop() EXCLUDES(mutex_);

  // For the engine's driver.
  struct State {
    bool finished = false;  // no byte can move any more
    std::optional<Error> error;
    Progress progress;
  };
  State Look() const EXCLUDES(mutex_);
  std::vector<uint32_t> UnfinishedItems() const EXCLUDES(mutex_);
  TcpOperation* operation = nullptr;  // of the engine's driver only; null when it is gone

 private:
  MovePart Cut() REQUIRES(mutex_);
  // What is under the cursor, as much as fits; false when the part is full.
  bool AddBlock(MovePart* part) REQUIRES(mutex_);
  void AddLocal(const BlockCursor::Stretch& stretch, MovePart* part) const;
  bool AddRange(const BlockCursor::Stretch& stretch, MovePart* part) const;
  bool HasWorkLocked() const REQUIRES(mutex_);
  bool Quiet(TimePoint now) const REQUIRES(mutex_);
  void FailLocked(Error why) REQUIRES(mutex_);
  // Tells the engine, now or when doubts end. After a change that can end the job.
  void AttendIfEnded() EXCLUDES(mutex_);

  const Setup setup_;

  mutable Mutex mutex_;
  BlockCursor cursor_ GUARDED_BY(mutex_);
  std::deque<MovePart> again_ GUARDED_BY(mutex_);
  std::vector<const void*> streams_ GUARDED_BY(mutex_);  // that took part
  size_t inflight_ GUARDED_BY(mutex_) = 0;
  bool stopped_ GUARDED_BY(mutex_) = false;
  bool attended_ GUARDED_BY(mutex_) = false;
  TimePoint in_doubt_until_ GUARDED_BY(mutex_){};
  std::optional<Error> error_ GUARDED_BY(mutex_);
  SegmentTally tally_ GUARDED_BY(mutex_);
  Progress progress_ GUARDED_BY(mutex_);
};

}  // namespace gantry::transport
