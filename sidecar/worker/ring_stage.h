// A ring with both of its ends in this thread, for rehearsals: a job goes the way of one between
// two processes, and nobody else hears of it. One thread.
#pragma once

#include <memory>

#include "sidecar/worker/worker_ring.h"

namespace gantry::worker {

class RingStage {
 public:
  RingStage()
      : ring_(std::make_unique_for_overwrite<RingLayout>()),
        pool_end_(InitializeRing(ring_.get())),
        worker_end_(ring_.get(), &doorbell_) {}

  PoolRingEnd& pool_end() { return pool_end_; }
  const PoolRingEnd& pool_end() const { return pool_end_; }
  WorkerRingEnd& worker_end() { return worker_end_; }

 private:
  const std::unique_ptr<RingLayout> ring_;
  Doorbell doorbell_{};
  PoolRingEnd pool_end_;
  WorkerRingEnd worker_end_;
};

}  // namespace gantry::worker
