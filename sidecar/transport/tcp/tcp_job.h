// One transfer over tcp. Cuts the plan into requests and tracks which are in flight, done, to be
// resent, or in doubt. Shared by the driver and I/O threads. Thread-safe.
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

// The part of a job that one request moves.
struct MovePart {
  std::shared_ptr<TcpJob> job;
  RequestBody body;
  ScatterList local;
  // Set when some local bytes are staged: then `local` stays empty until slices are assigned.
  std::shared_ptr<StagedPayload> staged;
  std::vector<SegmentTally::Piece> pieces;
  bool retried = false;
};

class TcpJob : public std::enable_shared_from_this<TcpJob> {
 public:
  // `local` has the bytes of each local allocation of the plan; empty for those that use
  // `staging`. `notify_driver` is called on any thread when the job has ended or failed.
  struct Setup {
    std::shared_ptr<const MovePlan> plan;
    std::vector<std::span<std::byte>> local;
    StagingHalf* staging = nullptr;  // null: none of it is staged
    int priority = 0;
    uint64_t token = 0;
    uint64_t part_bytes = 0;
    std::function<void(std::shared_ptr<TcpJob>)> notify_driver;
    std::function<void(TimePoint, std::function<void()>)> call_at;
  };
  explicit TcpJob(Setup setup);

  int priority() const { return setup_.priority; }
  uint64_t token() const { return setup_.token; }
  bool is_write() const { return setup_.plan->operation == wire::Operation::kWrite; }
  uint64_t part_bytes() const { return setup_.part_bytes; }
  uint64_t bytes() const { return setup_.plan->bytes; }
  const MovePlan& plan() const { return *setup_.plan; }

  // Returns the next part to request; nothing when all are issued. `stream` identifies the caller,
  // for counting only.
  std::optional<MovePart> Take(const void* stream) EXCLUDES(mutex_);
  bool HasWork() const EXCLUDES(mutex_);
  // True when nothing of it may be sent any more.
  bool stopped() const EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return stopped_;
  }
  void Done(const MovePart& part) EXCLUDES(mutex_);
  // The part moves no more or, for a write, not after `in_doubt_until`. It is resent once. With
  // `innocent` this does not count as an attempt.
  void Lost(MovePart part, const Error& why, TimePoint in_doubt_until, bool innocent)
      EXCLUDES(mutex_);
  // The target refused the part: the job fails.
  void Refused(const MovePart& part, Error why) EXCLUDES(mutex_);
  void Fail(Error why) EXCLUDES(mutex_);
  void Stop() EXCLUDES(mutex_);

  // For the driver.
  struct State {
    bool finished = false;  // no byte can move any more
    std::optional<Error> error;
    Progress progress;
  };
  State Snapshot() const EXCLUDES(mutex_);
  std::vector<uint32_t> UnfinishedItems() const EXCLUDES(mutex_);
  TcpOperation* operation = nullptr;  // used by the driver only; null when it is destroyed

 private:
  MovePart Cut() REQUIRES(mutex_);
  // Adds the bytes at the cursor, as many as fit; false when the part is full.
  bool AddBlock(MovePart* part) REQUIRES(mutex_);
  void AddLocal(const BlockCursor::Stretch& stretch, MovePart* part) const;
  bool AddRange(const BlockCursor::Stretch& stretch, MovePart* part) const;
  bool HasWorkLocked() const REQUIRES(mutex_);
  bool Quiet(TimePoint now) const REQUIRES(mutex_);
  void FailLocked(Error why) REQUIRES(mutex_);
  // Notifies the engine, now or when no write is in doubt. Call after each change that can end the
  // job.
  void NotifyIfEnded() EXCLUDES(mutex_);

  const Setup setup_;

  mutable Mutex mutex_;
  BlockCursor cursor_ GUARDED_BY(mutex_);
  std::deque<MovePart> again_ GUARDED_BY(mutex_);
  std::vector<const void*> streams_ GUARDED_BY(mutex_);  // that took part
  size_t inflight_ GUARDED_BY(mutex_) = 0;
  bool stopped_ GUARDED_BY(mutex_) = false;
  bool notified_ GUARDED_BY(mutex_) = false;
  TimePoint in_doubt_until_ GUARDED_BY(mutex_){};
  std::optional<Error> error_ GUARDED_BY(mutex_);
  SegmentTally tally_ GUARDED_BY(mutex_);
  Progress progress_ GUARDED_BY(mutex_);
};

}  // namespace gantry::transport
