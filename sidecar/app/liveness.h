// Whether this sidecar still moves: what probes of liveness are told. Check takes no lock, so that
// it answers whatever stands still. Thread-safe.
#pragma once

#include <atomic>

#include "lib/base/clock.h"
#include "lib/base/result.h"
#include "lib/http/http_exchange.h"
#include "lib/process/heartbeat.h"

namespace gantry {

class Liveness {
 public:
  // Twice as long as a worker may take to map memory, for which a table can be locked.
  static constexpr milliseconds kStandsStill{60'000};

  explicit Liveness(milliseconds stands_still = kStandsStill) : stands_still_(stands_still) {}

  // The housekeeping came round, and so took the locks of the tables.
  void HouseIsKept() { house_.Beat(); }
  // Looks at the requests that have the last thread: they must not wait. Outlives what it returns.
  http::Handler Watching(http::Handler handler);
  // What stands still, if anything does.
  Status Check() const;

 private:
  class AtLastThread;

  const milliseconds stands_still_;
  Heartbeat house_;
  Heartbeat requests_;  // the first one began, or one ended
  std::atomic<int> requests_at_last_thread_ = 0;
};

}  // namespace gantry
