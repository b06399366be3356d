// What a CopyPool has that is driven by a test's own hand, or by a clock of its own: nobody sleeps,
// and no worker is replaced. Used by one thread.
#pragma once

#include <string_view>

#include "sidecar/worker/channel/copy_pool.h"

namespace gantry::worker {

class DrivenCopyPool : public CopyPool {
 public:
  bool usable(int /*worker*/) const override { return true; }
  // Of a GPU whose UUID is a digit.
  int GpuPlace(std::string_view uuid) const override {
    return uuid.empty() ? 0 : uuid.front() - '0';
  }
  void Wait(TimePoint /*deadline*/, Mutex* /*driver*/) override {}
  void Nap(TimePoint /*deadline*/, Mutex* /*driver*/) override {}
  void WakeWaiter() override {}
  void TakeOver() override {}
  void HandBack(bool /*wake*/) override {}
  void LookAfresh() override {}
  void Replace(int /*worker*/) override {}
  void Rouse(int /*worker*/) override {}
};

}  // namespace gantry::worker
