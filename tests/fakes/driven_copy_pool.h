// What a CopyPool has that is driven by a test's own hand, or by a clock of its own: nobody sleeps,
// and no worker is replaced. Used by one thread.
#pragma once

#include <string_view>

#include "sidecar/worker/unattended_pool.h"

namespace gantry::worker {

class DrivenCopyPool : public UnattendedPool {
 public:
  bool usable(int /*worker*/) const override { return true; }
  // Of a GPU whose UUID is a digit.
  int GpuPlace(std::string_view uuid) const override {
    return uuid.empty() ? 0 : uuid.front() - '0';
  }
};

}  // namespace gantry::worker
