// Feeds a worker's end of the ring what a hostile pool could write, and the pool's end what a
// hostile worker could: no entry may be accepted that touches a byte outside of its mapping.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "sidecar/worker/channel/worker_ring.h"
#include "sidecar/worker/process/segment_copy.h"

namespace gantry::worker {
namespace {

__extension__ using Wide = unsigned __int128;

// The input: how far each head is ahead, the sizes of the mappings, then entries.
struct Prefix {
  uint32_t submissions_ahead;
  uint32_t completions_ahead;
  uint64_t source_size;
  uint64_t destination_size;
  uint32_t destination_writable;
  uint32_t places_ahead;
};

void Require(bool condition) {
  if (!condition) std::abort();
}

void RequireInside(uint64_t offset, uint64_t length, uint64_t stride, uint32_t count,
                   uint64_t size) {
  const Wide end = Wide{offset} + Wide{stride} * (count - 1) + length;
  Require(count > 0 && length > 0 && end <= Wide{size});
}

template <typename Entry>
void FillFrom(Entry* entries, uint32_t slots, const uint8_t** data, size_t* size) {
  for (uint32_t i = 0; i < slots && *size >= sizeof(Entry); ++i) {
    std::memcpy(&entries[(kFirstIndex + i) % slots], *data, sizeof(Entry));
    *data += sizeof(Entry);
    *size -= sizeof(Entry);
  }
}

void ConsumeSubmissions(RingLayout* ring, const Prefix& prefix) {
  Doorbell doorbell = {};
  WorkerRingEnd worker(ring, &doorbell);
  const MappedBytes source = {nullptr, prefix.source_size, false};
  const MappedBytes destination = {nullptr, prefix.destination_size,
                                   (prefix.destination_writable & 1) != 0};
  uint64_t tag = 0;
  CopySegment segment;
  bool ends_job = false;
  uint32_t taken = 0;
  while (worker.TakeSegment(&tag, &segment, &ends_job) == RingTake::kEntry) {
    Require(++taken <= kSubmissionSlots);
    if (ValidateSegment(segment, source, destination)) continue;
    Require(destination.writable);
    for (const BlockPlaces& place : segment.places) {
      RequireInside(place.source, segment.length, 0, 1, source.size);
      RequireInside(place.destination, segment.length, 0, 1, destination.size);
    }
    if (!segment.places.empty()) continue;
    RequireInside(segment.source_offset, segment.length, segment.source_stride, segment.count,
                  source.size);
    RequireInside(segment.destination_offset, segment.length, segment.destination_stride,
                  segment.count, destination.size);
  }
}

void ConsumeCompletions(RingLayout* ring) {
  PoolRingEnd pool(ring);
  Completion completion;
  uint32_t taken = 0;
  while (pool.TakeCompletion(&completion) == RingTake::kEntry) {
    Require(++taken <= kCompletionSlots);
    Require(static_cast<int>(completion.code) < kErrorCodeCount);
  }
}

}  // namespace
}  // namespace gantry::worker

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace gantry::worker;
  static const auto memory = std::make_unique<RingLayout>();
  Prefix prefix = {};
  if (size < sizeof(prefix)) return 0;
  std::memcpy(&prefix, data, sizeof(prefix));
  const uint8_t* entries = data + sizeof(prefix);
  size_t left = size - sizeof(prefix);
  RingLayout* ring = InitializeRing(memory.get());
  ring->submission_head.value = kFirstIndex + prefix.submissions_ahead;
  ring->completion_head.value = kFirstIndex + prefix.completions_ahead;
  ring->place_head.value = kFirstIndex + prefix.places_ahead;
  // The same bytes are entries of all rings.
  const uint8_t* places = entries;
  size_t left_places = left;
  FillFrom(ring->places, kPlaceSlots, &places, &left_places);
  const uint8_t* again = entries;
  size_t left_again = left;
  FillFrom(ring->submissions, kSubmissionSlots, &entries, &left);
  FillFrom(ring->completions, kCompletionSlots, &again, &left_again);
  ConsumeSubmissions(ring, prefix);
  ConsumeCompletions(ring);
  return 0;
}
