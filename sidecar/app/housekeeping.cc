#include "sidecar/app/housekeeping.h"

#include <condition_variable>
#include <mutex>

#include "lib/base/clock.h"
#include "lib/base/thread.h"
#include "sidecar/app/free_heap.h"
#include "sidecar/app/liveness.h"
#include "sidecar/messaging/hold_table.h"
#include "sidecar/peer/identity/peer_security.h"
#include "sidecar/registry/buffer_registry.h"
#include "sidecar/registry/workload_table.h"
#include "sidecar/transfer/transfer_engine.h"

namespace gantry {
namespace {

constexpr milliseconds kBetweenRounds{500};
constexpr int kRoundsPerRefresh = 2;
constexpr int kRoundsPerHeapCheck = 10;

}  // namespace

Result<std::unique_ptr<Housekeeping>> Housekeeping::Start(const Parts& parts) {
  std::unique_ptr<Housekeeping> house(new Housekeeping(parts));
  ASSIGN_OR_RETURN(house->thread_,
                   StartThread("gantry-house",
                               [&self = *house](const std::stop_token& stop) { self.Run(stop); }));
  return house;
}

void Housekeeping::Run(const std::stop_token& stop) {
  std::mutex mutex;
  std::condition_variable_any woken;
  std::unique_lock lock(mutex);
  int round = 0;
  while (!woken.wait_for(lock, stop, kBetweenRounds, [&] { return stop.stop_requested(); })) {
    if (++round % kRoundsPerRefresh == 0) parts_.security.Refresh();
    (void)parts_.registry.FinishRemovals(Clock::now() + milliseconds(10));
    parts_.holds.Tick();
    // Where a thread stands still with a table's lock, so does this one.
    (void)parts_.workloads.IsCurrent({}, 0);
    (void)parts_.engine.Totals();
    parts_.liveness.HouseIsKept();
    if (round % kRoundsPerHeapCheck == 0) ReturnFreeHeap();
  }
}

}  // namespace gantry
