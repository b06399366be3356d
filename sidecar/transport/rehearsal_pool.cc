#include "sidecar/transport/rehearsal_pool.h"

#include <algorithm>

namespace gantry::transport {
namespace {

constexpr uint64_t kCopyNanoseconds = 5'000;  // a job's, as if it were small

}  // namespace

RehearsalPool::RehearsalPool(worker::CopyPool& pool)
    : pool_(pool),
      ring_(std::make_unique_for_overwrite<worker::RingLayout>()),
      pool_end_(worker::InitializeRing(ring_.get())),
      worker_end_(ring_.get(), &doorbell_) {}

// The real ring is looked at as for a real job.
size_t RehearsalPool::free_slots(int worker) const {
  return std::min(pool_.free_slots(worker), pool_end_.free_slots());
}
size_t RehearsalPool::free_places(int worker) const {
  return std::min(pool_.free_places(worker), pool_end_.free_places());
}

bool RehearsalPool::Post(int worker, uint64_t tag, std::span<const worker::CopySegment> segments) {
  if (!usable(worker) || workers_.size() >= worker::kCompletionSlots) return false;
  if (!pool_end_.Submit(tag, segments)) return false;
  workers_.push_back(worker);
  return true;
}

size_t RehearsalPool::Poll(std::span<worker::Completion> completions) {
  worker::Completion done;
  worker::CopySegment segment;
  bool ends_job = false;
  while (worker_end_.TakeSegment(&done.tag, &segment, &ends_job) == worker::RingTake::kEntry) {
    done.copy_nanoseconds = kCopyNanoseconds;
    done.means = segment.means;
    if (ends_job) worker_end_.Complete(done);
  }
  size_t taken = 0;
  while (taken < std::min(completions.size(), workers_.size()) &&
         pool_end_.TakeCompletion(&completions[taken]) == worker::RingTake::kEntry) {
    completions[taken].worker = workers_[taken];
    ++taken;
  }
  workers_.erase(workers_.begin(), workers_.begin() + static_cast<std::ptrdiff_t>(taken));
  return taken;
}

}  // namespace gantry::transport
