// The copy workers to a transport that goes through a transfer which is rehearsed: they are as they
// are, take every job, and have done it when they are asked. What is posted goes through a ring of
// its own, no worker sees it, and nothing is waited for. Belongs to the driver.
#pragma once

#include <vector>

#include "sidecar/worker/ring_stage.h"
#include "sidecar/worker/unattended_pool.h"

namespace gantry::transport {

class RehearsalPool final : public worker::UnattendedPool {
 public:
  explicit RehearsalPool(worker::CopyPool& pool) : pool_(pool) {}

  int worker_count() const override { return pool_.worker_count(); }
  bool usable(int worker) const override { return pool_.usable(worker); }
  int gpu_of(int worker) const override { return pool_.gpu_of(worker); }
  bool reaches(int worker, int gpu) const override { return pool_.reaches(worker, gpu); }
  int GpuPlace(std::string_view uuid) const override { return pool_.GpuPlace(uuid); }
  size_t free_slots(int worker) const override;
  size_t free_places(int worker) const override;
  bool Post(int worker, uint64_t tag, std::span<const worker::CopySegment> segments) override;
  size_t Poll(std::span<worker::Completion> completions) override;

 private:
  worker::CopyPool& pool_;
  worker::RingStage ring_;
  std::vector<int> workers_;  // that the jobs in the ring were posted to, in their order
};

}  // namespace gantry::transport
