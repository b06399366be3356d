// The objects behind the shm and ipc paths, built from the configuration: the copy workers and
// their scheduler. Outlives the engine and everything that maps memory. Used by the main thread.
#pragma once

#include <memory>

#include "lib/base/result.h"
#include "sidecar/app/sidecar_config.h"
#include "sidecar/copy/copy_scheduler.h"
#include "sidecar/worker/pool/worker_pool.h"

namespace gantry {

class CopyPath {
 public:
  static Result<std::unique_ptr<CopyPath>> Create(const SidecarConfig& config);

  worker::WorkerPool& pool() { return *pool_; }
  transport::CopyScheduler& scheduler() { return scheduler_; }

 private:
  CopyPath(const SidecarConfig& config, std::unique_ptr<worker::WorkerPool> pool);

  const std::unique_ptr<worker::WorkerPool> pool_;
  transport::CopyScheduler scheduler_;
};

}  // namespace gantry
