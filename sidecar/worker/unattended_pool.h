// What a CopyPool has on which nobody sleeps, and no worker of which is woken or replaced through
// it.
#pragma once

#include "sidecar/worker/copy_pool.h"

namespace gantry::worker {

class UnattendedPool : public CopyPool {
 public:
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
