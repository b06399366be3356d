// The part of ShmTransport that rehearses.
#include "sidecar/transport/shm_operation.h"
#include "sidecar/transport/shm_stage.h"

namespace gantry::transport {
namespace {

// Of a transfer that is rehearsed: one that takes longer has no use for what that saves, and who
// drives has others to drive.
constexpr uint64_t kRehearsedBytes = 1 << 20;
constexpr size_t kRehearsedSegments = 128;
constexpr int kRehearsedPolls = 4;

}  // namespace

void ShmTransport::Rehearse(const std::shared_ptr<const MovePlan>& plan, int priority) try {
  if (plan->bytes > kRehearsedBytes || plan->segments.size() > kRehearsedSegments) return;
  if (stage_ == nullptr) stage_ = std::make_unique<Stage>(options_, pool_);
  ShmTransport& copies = stage_->copies;
  copies.last_worker_.store(last_worker_.load(std::memory_order_relaxed),
                            std::memory_order_relaxed);
  std::vector<uint64_t>& attention = stage_->attention;
  const auto operation = copies.StartFor(plan, priority, 0, &attention);
  for (int polls = 0; polls < kRehearsedPolls && !operation->finished(); ++polls) {
    copies.Poll(&attention);
  }
  operation->Stop();
  while (!operation->finished()) copies.Poll(&attention);  // its jobs are done when one looks
  attention.clear();
} catch (...) {
  stage_.reset();  // its jobs' operation is gone
  throw;
}

}  // namespace gantry::transport
