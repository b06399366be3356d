// The two ends of a worker's ring. Each reads indices and entries as a hostile writer might have
// left them: bounded first, copied out before they are looked at, own indices kept in private
// memory. A wake-up costs a system call only when the other side sleeps.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "lib/base/adaptive_spin.h"
#include "sidecar/worker/channel/copy_pool.h"
#include "sidecar/worker/channel/futex_wait.h"
#include "sidecar/worker/channel/ring_layout.h"

namespace gantry::worker {

enum class RingTake { kEntry, kEmpty, kCorrupt };

// Makes `memory` (sizeof(RingLayout) bytes, aligned to a cache line) an empty ring.
RingLayout* InitializeRing(void* memory);

// The pool's end: submits jobs, takes completions. Owned by the driver.
class PoolRingEnd {
 public:
  explicit PoolRingEnd(RingLayout* ring) : ring_(ring) {}

  // 0 when the worker's index cannot be true.
  size_t free_slots() const;
  size_t free_places() const;
  bool corrupt() const;  // what free_slots() was 0 for
  // All segments or none; false when there is no room. REQUIRES that fewer than kCompletionSlots
  // jobs are in flight.
  bool Submit(uint64_t tag, std::span<const CopySegment> segments);

  bool HasCompletion() const;
  // Sets tag, ok, code, copy_nanoseconds and means.
  RingTake TakeCompletion(Completion* completion);

  // From now on the worker's next completion rings the doorbell, once. Look with HasCompletion()
  // afterwards, then sleep.
  void AskForWake() { ring_->pool_waits.value.store(1, std::memory_order_seq_cst); }
  void CancelWake() { ring_->pool_waits.value.store(0, std::memory_order_relaxed); }

 private:
  // Behind `head`, of which it returns what is behind them. REQUIRES that there is room.
  uint32_t PutPlaces(uint32_t head, std::span<const BlockPlaces> places);

  RingLayout* ring_;
  uint32_t submission_head_ = kFirstIndex;
  uint32_t place_head_ = kFirstIndex;
  uint32_t completion_tail_ = kFirstIndex;
};

// The worker's end: takes segments, completes jobs. Used by the worker's copy thread.
class WorkerRingEnd {
 public:
  // `worker`: its number in the pool.
  WorkerRingEnd(RingLayout* ring, Doorbell* doorbell, int worker = 0)
      : ring_(ring), doorbell_(doorbell), worker_(static_cast<uint32_t>(worker)) {}

  // The next segment and whether it ends its job. Its numbers are unchecked; see ValidateSegment.
  // Its places are a copy, which the next call overwrites. The pool learns that slots are free at a
  // job's end, and every few segments within it.
  RingTake TakeSegment(uint64_t* tag, CopySegment* segment, bool* ends_job);
  // What TakeSegment takes next, as far as it is there by now: a hint, it may change meanwhile, and
  // its places are missing.
  std::optional<CopySegment> PeekSegment() const;
  // False when the ring is full, which an honest pool never lets happen.
  bool Complete(const Completion& completion);

  bool HasSegment() const;
  // Of all workers this one copied on a GPU last.
  bool CopiedOnGpuLast() const {
    return doorbell_->last.value.load(std::memory_order_relaxed) == worker_ + 1;
  }
  void NoteCopyOnGpu() {
    if (!CopiedOnGpuLast()) doorbell_->last.value.store(worker_ + 1, std::memory_order_relaxed);
  }
  // What is done while there is no segment; each returns soon.
  struct Meanwhile {
    std::function<void()> spins;   // between two looks
    std::function<void()> roused;  // once, after the sleep that a rouse has ended
  };
  // Returns when there may be a segment or `stop` is set; whoever sets it calls WakeWorker().
  void WaitForSegment(AdaptiveSpin* spin, const std::atomic<bool>& stop,
                      const Meanwhile& meanwhile = {});
  void WakeWorker();  // thread-safe

 private:
  bool TakePlaces(uint32_t count);
  template <typename Ready>
  void AwaitPromised(const Ready& ready);

  RingLayout* const ring_;
  Doorbell* const doorbell_;
  const uint32_t worker_;
  uint32_t submission_tail_ = kFirstIndex;
  uint32_t submission_head_ = kFirstIndex;  // as last read: what lies before it was there
  uint32_t place_tail_ = kFirstIndex;
  std::vector<BlockPlaces> places_;  // begins with those of the segment that was taken last
  uint32_t completion_head_ = kFirstIndex;
  uint32_t roused_ = 0;               // as last seen
  std::optional<uint64_t> open_job_;  // the tag of the job whose end has not been seen
};

// Rings the doorbell, whether anyone sleeps on it or not. Thread-safe.
void RingDoorbell(Doorbell* doorbell);

}  // namespace gantry::worker
