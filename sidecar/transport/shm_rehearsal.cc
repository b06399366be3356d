// The part of ShmTransport that rehearses.
#include <algorithm>
#include <utility>

#include "sidecar/transport/shm_operation.h"

namespace gantry::transport {
namespace {

// Of a transfer that is rehearsed: one that takes longer has no use for what that saves, and who
// drives has others to drive.
constexpr uint64_t kRehearsedBytes = 1 << 20;
constexpr size_t kRehearsedSegments = 128;
constexpr int kRehearsedPolls = 4;

}  // namespace

// What moves keeps in the caches what a rehearsal would, and would wait for it.
bool ShmTransport::IsAtRest() const {
  return jobs_in_flight_ == 0 && finished_.empty() &&
         std::all_of(waiting_.begin(), waiting_.end(), [](const auto& level) {
           return std::all_of(level.second.queues.begin(), level.second.queues.end(),
                              [](const auto& queue) { return queue.second.empty(); });
         });
}

// While it is: what was learned is put back then.
struct ShmTransport::Rehearsing {
  explicit Rehearsing(ShmTransport* in) : of(in), learned(in->gpu_planners_) {
    of->rehearses_ = true;
  }
  ~Rehearsing() {
    of->rehearses_ = false;
    of->rehearsed_now_.clear();
    of->gpu_planners_ = std::move(learned);
  }
  Rehearsing(const Rehearsing&) = delete;
  Rehearsing& operator=(const Rehearsing&) = delete;

  ShmTransport* const of;
  std::vector<GpuCopyPlanner> learned;
};

// With what jobs are kept in, so that it is this that is used.
std::unique_ptr<Operation> ShmTransport::Rehearse(std::shared_ptr<const MovePlan> plan,
                                                  int priority) {
  if (plan->bytes > kRehearsedBytes || plan->segments.size() > kRehearsedSegments) return nullptr;
  if (!IsAtRest()) return nullptr;
  const Rehearsing rehearsing(this);
  auto operation = StartFor(std::move(plan), priority, 0, &rehearsed_now_);
  for (int polls = 0; polls < kRehearsedPolls && !operation->finished(); ++polls) {
    Poll(&rehearsed_now_);
  }
  const bool moved_all = operation->finished() && !operation->error();
  operation->Stop();
  while (!operation->finished()) Poll(&rehearsed_now_);  // its jobs are done when one looks
  if (!moved_all) return nullptr;
  return operation;
}

}  // namespace gantry::transport
