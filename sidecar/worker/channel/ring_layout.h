// The shared memory between the pool and one worker: single-producer rings of submissions, places
// of listed blocks, and completions. Indices run freely and wrap at 2^32. Each index has one
// writer, named beside it. Neither side trusts the other's data: see worker_ring.h.
#pragma once

#include <atomic>
#include <cstdint>
#include <type_traits>

#include "sidecar/worker/channel/gpu_copy_costs.h"

namespace gantry::worker {

inline constexpr uint64_t kRingMagic = 0x676e7274'72696e67;  // "gnrtring"
inline constexpr uint32_t kRingVersion = 6;
inline constexpr uint32_t kSubmissionSlots = 4096;  // powers of two, as the indices wrap
inline constexpr uint32_t kPlaceSlots = 65536;
inline constexpr uint32_t kCompletionSlots = 4096;
inline constexpr uint32_t kFirstIndex = 0U - 100;  // wraps early, so that a mistake there shows
// Flags.
inline constexpr uint32_t kEndOfJob = 1;
inline constexpr uint32_t kListed = 2;    // the next `count` places belong to it
inline constexpr uint32_t kByKernel = 4;  // GpuMeans
inline constexpr uint32_t kStreamed = 8;  // CopySegment's
inline constexpr uint32_t kAllFlags = kEndOfJob | kListed | kByKernel | kStreamed;

// One segment of a job; the last one of a job carries kEndOfJob, all of them the job's tag.
struct SubmissionEntry {
  uint64_t tag;
  uint32_t source_slot;
  uint32_t source_generation;
  uint32_t destination_slot;
  uint32_t destination_generation;
  uint64_t source_offset;
  uint64_t destination_offset;
  uint64_t length;
  uint64_t source_stride;
  uint64_t destination_stride;
  uint32_t count;
  uint32_t flags;
};
static_assert(sizeof(SubmissionEntry) == 72 && std::is_trivial_v<SubmissionEntry>);

struct CompletionEntry {
  uint64_t tag;
  uint64_t copy_nanoseconds;
  uint32_t ok;     // 0 or 1
  uint32_t code;   // ErrorCode when not ok
  uint64_t means;  // GpuMeans
};
static_assert(sizeof(CompletionEntry) == 32 && std::is_trivial_v<CompletionEntry>);

struct PlaceEntry {
  uint64_t source;
  uint64_t destination;
};
static_assert(sizeof(PlaceEntry) == 16 && std::is_trivial_v<PlaceEntry>);

// A word alone in its cache line.
struct alignas(64) RingWord {
  std::atomic<uint32_t> value;
};

// See shared_costs.h.
struct alignas(64) SharedCosts {
  std::atomic<uint32_t> state;
  std::atomic<uint64_t> values[kCostFields.size()];
};

struct RingLayout {
  uint64_t magic;
  uint32_t version;
  RingWord submission_head;  // pool
  RingWord submission_tail;  // worker
  RingWord worker_sleeps;    // futex: the worker sets it to 1, the pool back to 0
  RingWord place_head;       // pool, before the entries that they belong to
  RingWord place_tail;       // worker
  RingWord completion_head;  // worker
  RingWord completion_tail;  // pool
  RingWord pool_waits;       // the pool sets it to 1, the worker back to 0 and rings the doorbell
  SharedCosts costs;         // worker, except that the pool wants them
  SubmissionEntry submissions[kSubmissionSlots];
  PlaceEntry places[kPlaceSlots];
  CompletionEntry completions[kCompletionSlots];
};

// Shared by all workers of a pool: the engine's thread sleeps on it. `sequence` counts wake-ups.
struct Doorbell {
  RingWord sequence;
  RingWord wake_hints;  // changes when GPU jobs are expected and a worker sleeps
  RingWord last;        // 1 + index of the last worker that copied on a GPU; 0: none
};

static_assert(std::atomic<uint32_t>::is_always_lock_free);
static_assert((kSubmissionSlots & (kSubmissionSlots - 1)) == 0);
static_assert((kPlaceSlots & (kPlaceSlots - 1)) == 0);
static_assert((kCompletionSlots & (kCompletionSlots - 1)) == 0);

}  // namespace gantry::worker
