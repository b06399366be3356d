// A pool's driver that nobody relieves: what tests use that poll a pool from one thread.
// Thread-safe as the pool is.
#pragma once

#include "sidecar/worker/channel/driver_sleep.h"

namespace gantry::worker {

inline void WaitAlone(DriverSleep& pool, TimePoint deadline) {
  Mutex driver;
  driver.lock();
  pool.Wait(deadline, &driver);
  driver.unlock();
}

inline void WaitIgnoringCompletionsAlone(DriverSleep& pool, TimePoint deadline) {
  Mutex driver;
  driver.lock();
  pool.WaitIgnoringCompletions(deadline, &driver);
  driver.unlock();
}

}  // namespace gantry::worker
