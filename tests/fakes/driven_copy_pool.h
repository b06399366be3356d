// A pool that a test's own hand or clock drives: no worker is replaced. Used by one thread.
#pragma once

#include <string_view>

#include "sidecar/worker/channel/copy_pool.h"
#include "sidecar/worker/channel/copy_workers.h"

namespace gantry::worker {

class DrivenCopyPool : public CopyPool, public CopyWorkers {
 public:
  bool usable(int /*worker*/) const override { return true; }
  // The UUID of a GPU begins with its index.
  int GpuPlace(std::string_view uuid) const override {
    return uuid.empty() ? 0 : uuid.front() - '0';
  }
  void Replace(int /*worker*/) override {}
  void WakeWorker(int /*worker*/) override {}
};

}  // namespace gantry::worker
