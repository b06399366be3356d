#include "sidecar/transport/rehearsal_pool.h"

#include <algorithm>

namespace gantry::transport {
namespace {

constexpr uint64_t kCopyNanoseconds = 5'000;  // a job's, as if it were small

}  // namespace

// The real ring is looked at as for a real job.
size_t RehearsalPool::free_slots(int worker) const {
  return std::min(pool_.free_slots(worker), ring_.pool_end().free_slots());
}
size_t RehearsalPool::free_places(int worker) const {
  return std::min(pool_.free_places(worker), ring_.pool_end().free_places());
}

bool RehearsalPool::Post(int worker, uint64_t tag, std::span<const worker::CopySegment> segments) {
  if (!usable(worker) || workers_.size() >= worker::kCompletionSlots) return false;
  if (!ring_.pool_end().Submit(tag, segments)) return false;
  workers_.push_back(worker);
  return true;
}

size_t RehearsalPool::Poll(std::span<worker::Completion> completions) {
  worker::Completion done;
  worker::CopySegment segment;
  bool ends_job = false;
  while (ring_.worker_end().TakeSegment(&done.tag, &segment, &ends_job) ==
         worker::RingTake::kEntry) {
    done.copy_nanoseconds = kCopyNanoseconds;
    done.means = segment.means;
    if (ends_job) ring_.worker_end().Complete(done);
  }
  size_t taken = 0;
  while (taken < std::min(completions.size(), workers_.size()) &&
         ring_.pool_end().TakeCompletion(&completions[taken]) == worker::RingTake::kEntry) {
    completions[taken].worker = workers_[taken];
    ++taken;
  }
  workers_.erase(workers_.begin(), workers_.begin() + static_cast<std::ptrdiff_t>(taken));
  return taken;
}

}  // namespace gantry::transport
