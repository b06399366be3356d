// How the thread that drives the copy workers sleeps and is woken. Any thread may call WakeWaiter.
// The driver alone calls the rest: the engine's thread, or the thread that takes over while the
// engine's sleeps. Implemented by WorkerPool and by a fake.
#pragma once

#include "lib/base/clock.h"
#include "lib/base/mutex.h"

namespace gantry::worker {

class DriverSleep {
 public:
  virtual ~DriverSleep() = default;
  // Blocks until a completion may be there, WakeWaiter() is called, or the deadline passes. The
  // caller holds `driver`; it is released while the thread sleeps.
  virtual void Wait(TimePoint deadline, Mutex* driver) = 0;
  // Like Wait, but completions do not end it. Waking up for each job would take processor time from
  // busy workers.
  virtual void WaitIgnoringCompletions(TimePoint deadline, Mutex* driver) = 0;
  virtual void WakeWaiter() = 0;
  // Another thread drives between BeginDriving and EndDriving. The sleeping thread is not woken
  // meanwhile, so that it does not compete for a processor. EndDriving wakes it if `wake`, or if
  // something has arrived since the last ClearWakeRequests.
  virtual void BeginDriving() = 0;
  virtual void EndDriving(bool wake) = 0;
  // Clears pending wake-up requests: the driver examines everything after this call.
  virtual void ClearWakeRequests() = 0;
};

}  // namespace gantry::worker
