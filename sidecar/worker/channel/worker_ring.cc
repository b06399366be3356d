#include "sidecar/worker/channel/worker_ring.h"

#include <algorithm>
#include <climits>
#include <cstddef>
#include <cstring>
#include <new>
#include <utility>

namespace gantry::worker {
namespace {

// Reads an entry word by word, each exactly once: the other side may change it meanwhile, and the
// compiler must not read it again after a check.
template <typename Entry>
Entry CopyOut(Entry& shared) {
  constexpr size_t kWords = sizeof(Entry) / sizeof(uint64_t);
  static_assert(kWords * sizeof(uint64_t) == sizeof(Entry) && alignof(Entry) == alignof(uint64_t));
  uint64_t words[kWords];
  auto* first = reinterpret_cast<uint64_t*>(&shared);
  for (size_t i = 0; i < kWords; ++i) {
    words[i] = std::atomic_ref<uint64_t>(first[i]).load(std::memory_order_relaxed);
  }
  Entry entry;
  std::memcpy(&entry, words, sizeof(entry));
  return entry;
}

template <typename Entry>
void CopyIn(const Entry& entry, Entry& shared) {
  constexpr size_t kWords = sizeof(Entry) / sizeof(uint64_t);
  uint64_t words[kWords];
  std::memcpy(words, &entry, sizeof(entry));
  auto* first = reinterpret_cast<uint64_t*>(&shared);
  for (size_t i = 0; i < kWords; ++i) {
    std::atomic_ref<uint64_t>(first[i]).store(words[i], std::memory_order_relaxed);
  }
}

// The entries come from another core's cache, which takes a tenth of the time of copying 4 KiB;
// asked for early, they come while something else is copied.
constexpr uint32_t kPrefetchAhead = 8;
constexpr uint32_t kTailStep = 32;
// Places are copied as they are.
static_assert(sizeof(PlaceEntry) == sizeof(BlockPlaces) &&
              offsetof(PlaceEntry, source) == offsetof(BlockPlaces, source) &&
              offsetof(PlaceEntry, destination) == offsetof(BlockPlaces, destination));
// After WakeWorker: jobs are being planned, which takes less than a sleep and a wake-up.
constexpr BoundedSpin kPromised{milliseconds(1)};

void Prefetch(const SubmissionEntry& entry) {
  const auto* bytes = reinterpret_cast<const char*>(&entry);
  __builtin_prefetch(bytes);
  __builtin_prefetch(bytes + sizeof(entry) - 1);
}

SubmissionEntry EntryOf(uint64_t tag, const CopySegment& segment, bool ends_job) {
  return {tag,
          segment.source.slot,
          segment.source.generation,
          segment.destination.slot,
          segment.destination.generation,
          segment.source_offset,
          segment.destination_offset,
          segment.length,
          segment.source_stride,
          segment.destination_stride,
          segment.count,
          (ends_job ? kEndOfJob : 0) | (segment.places.empty() ? 0 : kListed) |
              (segment.means == GpuMeans::kKernel ? kByKernel : 0) |
              (segment.streamed ? kStreamed : 0)};
}

CopySegment SegmentOf(const SubmissionEntry& entry) {
  return {{entry.source_slot, entry.source_generation},
          {entry.destination_slot, entry.destination_generation},
          entry.source_offset,
          entry.destination_offset,
          entry.length,
          entry.source_stride,
          entry.destination_stride,
          entry.count,
          (entry.flags & kByKernel) != 0 ? GpuMeans::kKernel : GpuMeans::kCopyEngine,
          {},
          (entry.flags & kStreamed) != 0};
}

}  // namespace

// Word by word, as somebody may look at one meanwhile. What the slots hold is never read. The costs
// stay: they are the GPU's.
RingLayout* InitializeRing(void* memory) {
  auto* ring = static_cast<RingLayout*>(memory);
  for (RingWord* index : {&ring->submission_head, &ring->submission_tail, &ring->completion_head,
                          &ring->completion_tail, &ring->place_head, &ring->place_tail}) {
    index->value.store(kFirstIndex, std::memory_order_relaxed);
  }
  ring->worker_sleeps.value.store(0, std::memory_order_relaxed);
  ring->pool_waits.value.store(0, std::memory_order_relaxed);
  ring->magic = kRingMagic;
  ring->version = kRingVersion;
  return ring;
}

size_t PoolRingEnd::free_slots() const {
  const uint32_t tail = ring_->submission_tail.value.load(std::memory_order_acquire);
  const uint32_t used = submission_head_ - tail;
  return used > kSubmissionSlots ? 0 : kSubmissionSlots - used;
}

size_t PoolRingEnd::free_places() const {
  const uint32_t tail = ring_->place_tail.value.load(std::memory_order_acquire);
  const uint32_t used = place_head_ - tail;
  return used > kPlaceSlots ? 0 : kPlaceSlots - used;
}

bool PoolRingEnd::corrupt() const {
  const uint32_t tail = ring_->submission_tail.value.load(std::memory_order_acquire);
  const uint32_t place_tail = ring_->place_tail.value.load(std::memory_order_acquire);
  return submission_head_ - tail > kSubmissionSlots || place_head_ - place_tail > kPlaceSlots;
}

bool PoolRingEnd::Submit(uint64_t tag, std::span<const CopySegment> segments) {
  if (segments.empty() || free_slots() < segments.size()) return false;
  size_t places = 0;
  for (const CopySegment& segment : segments) places += segment.places.size();
  if (places > 0 && free_places() < places) return false;
  for (size_t i = 0; i < segments.size(); ++i) {
    place_head_ = PutPlaces(place_head_, segments[i].places);
    CopyIn(EntryOf(tag, segments[i], i + 1 == segments.size()),
           ring_->submissions[submission_head_++ % kSubmissionSlots]);
  }
  if (places > 0) ring_->place_head.value.store(place_head_, std::memory_order_release);
  // Store, then look at the flag; the worker sets its flag, then looks at the head. With both
  // sequentially consistent, one of the two sees the other.
  ring_->submission_head.value.store(submission_head_, std::memory_order_seq_cst);
  std::atomic<uint32_t>& sleeps = ring_->worker_sleeps.value;
  if (sleeps.load(std::memory_order_seq_cst) != 0 && sleeps.exchange(0) != 0) FutexWake(sleeps, 1);
  return true;
}

// Plain copies, in one piece but where the ring ends: an honest worker reads none of these slots
// before it sees the head that is stored behind them, and of another one nothing is expected.
uint32_t PoolRingEnd::PutPlaces(uint32_t head, std::span<const BlockPlaces> places) {
  while (!places.empty()) {
    const uint32_t slot = head % kPlaceSlots;
    const auto count = static_cast<uint32_t>(std::min<size_t>(places.size(), kPlaceSlots - slot));
    std::memcpy(&ring_->places[slot], places.data(), count * sizeof(PlaceEntry));
    head += count;
    places = places.subspan(count);
  }
  return head;
}

bool PoolRingEnd::HasCompletion() const {
  return ring_->completion_head.value.load(std::memory_order_seq_cst) != completion_tail_;
}

RingTake PoolRingEnd::TakeCompletion(Completion* completion) {
  const uint32_t head = ring_->completion_head.value.load(std::memory_order_acquire);
  const uint32_t available = head - completion_tail_;
  if (available == 0) return RingTake::kEmpty;
  if (available > kCompletionSlots) return RingTake::kCorrupt;
  const CompletionEntry entry = CopyOut(ring_->completions[completion_tail_ % kCompletionSlots]);
  if (entry.ok > 1 || entry.code >= static_cast<uint32_t>(kErrorCodeCount) ||
      entry.means > static_cast<uint64_t>(GpuMeans::kKernel)) {
    return RingTake::kCorrupt;
  }
  ring_->completion_tail.value.store(++completion_tail_, std::memory_order_release);
  completion->tag = entry.tag;
  completion->ok = entry.ok == 1;
  completion->code = static_cast<ErrorCode>(entry.code);
  completion->copy_nanoseconds = entry.copy_nanoseconds;
  completion->means = static_cast<GpuMeans>(entry.means);
  return RingTake::kEntry;
}

RingTake WorkerRingEnd::TakeSegment(uint64_t* tag, CopySegment* segment, bool* ends_job) {
  if (submission_head_ == submission_tail_) {
    submission_head_ = ring_->submission_head.value.load(std::memory_order_acquire);
  }
  const uint32_t available = submission_head_ - submission_tail_;
  if (available == 0) return RingTake::kEmpty;
  if (available > kSubmissionSlots) return RingTake::kCorrupt;
  Prefetch(ring_->submissions[(submission_tail_ + kPrefetchAhead) % kSubmissionSlots]);
  const SubmissionEntry entry = CopyOut(ring_->submissions[submission_tail_ % kSubmissionSlots]);
  if ((entry.flags & ~kAllFlags) != 0) return RingTake::kCorrupt;
  if (open_job_ && *open_job_ != entry.tag) return RingTake::kCorrupt;
  const bool listed = (entry.flags & kListed) != 0;
  if (listed && !TakePlaces(entry.count)) return RingTake::kCorrupt;
  ++submission_tail_;
  *tag = entry.tag;
  *segment = SegmentOf(entry);
  if (listed) segment->places = {places_.data(), entry.count};
  *ends_job = (entry.flags & kEndOfJob) != 0;
  // The pool reads this word: written for each segment, its line would travel for each segment.
  if (*ends_job || submission_tail_ % kTailStep == 0) {
    ring_->submission_tail.value.store(submission_tail_, std::memory_order_release);
  }
  open_job_ = *ends_job ? std::nullopt : std::optional<uint64_t>(entry.tag);
  return RingTake::kEntry;
}

// False when there are not so many.
bool WorkerRingEnd::TakePlaces(uint32_t count) {
  const uint32_t available = ring_->place_head.value.load(std::memory_order_acquire) - place_tail_;
  if (available > kPlaceSlots || count == 0 || count > available) return false;
  if (places_.size() < count) places_.resize(count);
  const uint32_t first = place_tail_ % kPlaceSlots;
  const uint32_t before_wrap = std::min(count, kPlaceSlots - first);
  void* const to = places_.data();
  void* const rest = places_.data() + before_wrap;
  std::memcpy(to, ring_->places + first, before_wrap * sizeof(PlaceEntry));
  std::memcpy(rest, ring_->places, (count - before_wrap) * sizeof(PlaceEntry));
  // From here on only the copy is read: the other side may change the original after a check.
  std::atomic_signal_fence(std::memory_order_seq_cst);
  place_tail_ += count;
  ring_->place_tail.value.store(place_tail_, std::memory_order_release);
  return true;
}

std::optional<CopySegment> WorkerRingEnd::PeekSegment() const {
  if (submission_head_ == submission_tail_) return std::nullopt;
  return SegmentOf(CopyOut(ring_->submissions[submission_tail_ % kSubmissionSlots]));
}

bool WorkerRingEnd::Complete(const Completion& completion) {
  const uint32_t tail = ring_->completion_tail.value.load(std::memory_order_acquire);
  if (completion_head_ - tail >= kCompletionSlots) return false;
  const CompletionEntry entry = {completion.tag, completion.copy_nanoseconds,
                                 completion.ok ? 1U : 0U, static_cast<uint32_t>(completion.code),
                                 static_cast<uint64_t>(completion.means)};
  CopyIn(entry, ring_->completions[completion_head_ % kCompletionSlots]);
  ring_->completion_head.value.store(++completion_head_, std::memory_order_seq_cst);
  std::atomic<uint32_t>& waits = ring_->pool_waits.value;
  // Each worker has its own flag: one that is stopped between these two silences no other.
  if (waits.load(std::memory_order_seq_cst) != 0 && waits.exchange(0) != 0) RingDoorbell(doorbell_);
  return true;
}

bool WorkerRingEnd::HasSegment() const {
  return ring_->submission_head.value.load(std::memory_order_seq_cst) != submission_tail_;
}

void WorkerRingEnd::WaitForSegment(const BoundedSpin& spin, const std::atomic<bool>& stop,
                                   const Meanwhile& meanwhile) {
  const auto ready = [&] { return HasSegment() || stop.load(std::memory_order_seq_cst); };
  const auto look = [&] {
    if (ready()) return true;
    if (meanwhile.spins) meanwhile.spins();
    return false;
  };
  if (spin.Until(look)) return;
  std::atomic<uint32_t>& sleeps = ring_->worker_sleeps.value;
  sleeps.store(1, std::memory_order_seq_cst);
  if (!ready()) FutexWait(sleeps, 1, TimePoint::max());
  sleeps.store(0, std::memory_order_relaxed);
  const uint32_t wake_hints = doorbell_->wake_hints.value.load();
  if (std::exchange(wake_hints_, wake_hints) == wake_hints || ready()) return;
  if (meanwhile.on_wake_hint) meanwhile.on_wake_hint();
  kPromised.Until(ready);
}

void WorkerRingEnd::WakeWorker() {
  ring_->worker_sleeps.value.exchange(0);
  FutexWake(ring_->worker_sleeps.value, 1);
}

void RingDoorbell(Doorbell* doorbell) {
  doorbell->sequence.value.fetch_add(1, std::memory_order_seq_cst);
  FutexWake(doorbell->sequence.value, INT_MAX);
}

}  // namespace gantry::worker
