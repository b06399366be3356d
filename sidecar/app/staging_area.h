// The sidecar's staging: the memory, a half for each side of the tcp transport, and the copier.
// Built if workers have or await GPUs, or unsealed memory is taken. Outlives the engine and the
// peers. The main thread creates and closes it; the rest is thread-safe.
#pragma once

#include <functional>
#include <memory>

#include "lib/base/result.h"
#include "sidecar/app/copy_path.h"
#include "sidecar/app/sidecar_config.h"
#include "sidecar/copy/staged_copies.h"
#include "sidecar/copy/staging_half.h"
#include "sidecar/memory/staging_memory.h"
#include "sidecar/metrics/metrics.h"
#include "sidecar/transport/tcp/channel/io_loop.h"

namespace gantry {

class StagingArea {
 public:
  // A failure does not fail the start: memory that has to be staged then cannot use tcp.
  static Result<std::unique_ptr<StagingArea>> Create(const SidecarConfig& config, CopyPath& copies,
                                                     transport::IoLoops& loops);

  transport::StagingHalf* initiator() { return &initiator_; }
  transport::StagingHalf* target() { return &target_; }
  transport::StagedCopies& copies() { return copies_; }
  metrics::StagingSample Sample() const;

 private:
  StagingArea(CopyPath& copies, std::unique_ptr<memory::StagingMemory> memory, uint32_t slices,
              std::function<void(TimePoint, std::function<void()>)> call_at);

  const std::unique_ptr<memory::StagingMemory> memory_;
  transport::StagedCopies copies_;
  transport::StagingHalf initiator_;
  transport::StagingHalf target_;
};

}  // namespace gantry
