// The staging of a sidecar, made from the configuration where workers have or await GPUs: the
// memory, the half of it that either side of the tcp transport has, and who copies. Outlives the
// engine and the peers. Made and closed by the main thread; the rest is thread-safe.
#pragma once

#include <functional>
#include <memory>

#include "lib/base/result.h"
#include "sidecar/app/sidecar_config.h"
#include "sidecar/copy/staged_copies.h"
#include "sidecar/copy/staging_half.h"
#include "sidecar/memory/staging_memory.h"
#include "sidecar/metrics/metrics.h"
#include "sidecar/transport/tcp/channel/io_loop.h"
#include "sidecar/worker/pool/worker_pool.h"

namespace gantry {

class StagingArea {
 public:
  // Why there is none is no failure of the start: memory of GPUs then has no way over tcp.
  static Result<std::unique_ptr<StagingArea>> Create(const SidecarConfig& config,
                                                     worker::WorkerPool& pool,
                                                     transport::IoLoops& loops);

  transport::StagingHalf* initiator() { return &initiator_; }
  transport::StagingHalf* target() { return &target_; }
  transport::StagedCopies& copies() { return copies_; }
  metrics::StagingSample Sample() const;

 private:
  StagingArea(std::unique_ptr<memory::StagingMemory> memory, uint32_t slices,
              std::function<void()> wake,
              std::function<void(TimePoint, std::function<void()>)> call_at);

  const std::unique_ptr<memory::StagingMemory> memory_;
  transport::StagedCopies copies_;
  transport::StagingHalf initiator_;
  transport::StagingHalf target_;
};

}  // namespace gantry
