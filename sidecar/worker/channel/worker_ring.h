// The two ends of a worker's ring. Each treats shared indices and entries as hostile: it bounds
// them and copies entries before checking. Its own indices stay in private memory. Waking up the
// other side costs a system call only while that side sleeps.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "lib/base/bounded_spin.h"
#include "sidecar/worker/channel/copy_pool.h"
#include "sidecar/worker/channel/futex_wait.h"
#include "sidecar/worker/channel/ring_layout.h"

namespace gantry::worker {

enum class RingTake { kEntry, kEmpty, kCorrupt };

// Makes `memory` an empty ring: sizeof(RingLayout) bytes, aligned to a cache line.
RingLayout* InitializeRing(void* memory);

// The pool's end: submits jobs, takes completions. Used by the driver.
class PoolRingEnd {
 public:
  explicit PoolRingEnd(RingLayout* ring) : ring_(ring) {}

  // Both return 0 when the worker's index is invalid.
  size_t free_slots() const;
  size_t free_places() const;
  bool corrupt() const;  // an index of the worker is invalid
  // Submits all segments or none; false when there is no room. Wakes the worker if it sleeps.
  // REQUIRES that fewer than kCompletionSlots jobs are in flight.
  bool Submit(uint64_t tag, std::span<const CopySegment> segments);

  bool HasCompletion() const;
  // Sets tag, ok, code, copy_nanoseconds and means.
  RingTake TakeCompletion(Completion* completion);

  // The worker's next completion rings the doorbell, once. Check HasCompletion() after this call,
  // then sleep.
  void RequestWake() { ring_->pool_waits.value.store(1, std::memory_order_seq_cst); }
  void CancelWake() { ring_->pool_waits.value.store(0, std::memory_order_relaxed); }

 private:
  // Writes `places` from index `head` on and returns the index after them. REQUIRES enough room.
  uint32_t PutPlaces(uint32_t head, std::span<const BlockPlaces> places);

  RingLayout* ring_;
  uint32_t submission_head_ = kFirstIndex;
  uint32_t place_head_ = kFirstIndex;
  uint32_t completion_tail_ = kFirstIndex;
};

// The worker's end: takes segments, completes jobs. Used by the worker's copy thread.
class WorkerRingEnd {
 public:
  // `worker` is its index in the pool.
  WorkerRingEnd(RingLayout* ring, Doorbell* doorbell, int worker = 0)
      : ring_(ring), doorbell_(doorbell), worker_(static_cast<uint32_t>(worker)) {}

  // Takes the next segment; *ends_job tells whether it ends its job. Its numbers are unchecked: see
  // ValidateSegment. Its places are a copy that the next call overwrites. The pool sees free slots
  // at a job's end, and every few segments within a job.
  RingTake TakeSegment(uint64_t* tag, CopySegment* segment, bool* ends_job);
  // Returns the segment that TakeSegment takes next, if it is visible already. A hint: the pool may
  // still change it, and its places are missing.
  std::optional<CopySegment> PeekSegment() const;
  // Returns false when the ring is full, which an honest pool prevents.
  bool Complete(const Completion& completion);

  bool HasSegment() const;
  // True when this worker was the last of the pool to copy on a GPU.
  bool CopiedOnGpuLast() const {
    return doorbell_->last.value.load(std::memory_order_relaxed) == worker_ + 1;
  }
  void NoteCopyOnGpu() {
    if (!CopiedOnGpuLast()) doorbell_->last.value.store(worker_ + 1, std::memory_order_relaxed);
  }
  // Callbacks while there is no segment; each returns soon.
  struct Meanwhile {
    std::function<void()> spins;         // between two checks
    std::function<void()> on_wake_hint;  // once, after a sleep that WakeWorker ended
  };
  // Returns when there may be a segment or `stop` is set. After setting `stop`, call WakeWorker().
  void WaitForSegment(const BoundedSpin& spin, const std::atomic<bool>& stop,
                      const Meanwhile& meanwhile = {});
  void WakeWorker();  // thread-safe

 private:
  bool TakePlaces(uint32_t count);

  RingLayout* const ring_;
  Doorbell* const doorbell_;
  const uint32_t worker_;
  uint32_t submission_tail_ = kFirstIndex;
  uint32_t submission_head_ = kFirstIndex;  // as last read
  uint32_t place_tail_ = kFirstIndex;
  std::vector<BlockPlaces> places_;  // begins with the places of the last segment
  uint32_t completion_head_ = kFirstIndex;
  uint32_t wake_hints_ = 0;           // as last read
  std::optional<uint64_t> open_job_;  // the tag of the unfinished job
};

// Wakes the thread that sleeps on the doorbell, if any. Thread-safe.
void RingDoorbell(Doorbell* doorbell);

}  // namespace gantry::worker
