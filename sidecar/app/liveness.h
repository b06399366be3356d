// Detects whether the sidecar has stalled, for liveness probes. Check takes no lock, so it answers
// even when all else is blocked. Thread-safe.
#pragma once

#include <atomic>

#include "lib/base/clock.h"
#include "lib/base/result.h"
#include "lib/http/http_exchange.h"
#include "lib/process/heartbeat.h"

namespace gantry {

class Liveness {
 public:
  // Twice the longest time that a worker may take to map memory, during which a table can be
  // locked.
  static constexpr milliseconds kStandsStill{60'000};

  explicit Liveness(milliseconds stands_still = kStandsStill) : stands_still_(stands_still) {}

  // Call from each round of housekeeping, which has taken the tables' locks.
  void HouseIsKept() { house_.Beat(); }
  // Wraps the handler to track requests on the last free thread, which must not wait. Outlives the
  // returned handler.
  http::Handler Watching(http::Handler handler);
  // Fails with what has stalled.
  Status Check() const;

 private:
  class AtLastThread;

  const milliseconds stands_still_;
  Heartbeat house_;
  Heartbeat requests_;  // a request on the last thread began or ended
  std::atomic<int> requests_at_last_thread_ = 0;
};

}  // namespace gantry
