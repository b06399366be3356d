// Who waits for an execution at a peer, and when it ended. Thread-safe.
#pragma once

#include <future>
#include <vector>

#include "lib/base/clock.h"
#include "sidecar/remote/peer_executor.h"

namespace gantry::peer {

struct TimedWatcher final : engine::PeerExecutor::Watcher {
  void OnAccepted(wire::Path, std::vector<wire::PathReport>) override { begun.set_value(); }
  void OnProgress(uint64_t) override {}
  void OnEnded(const wire::PeerExecutionEnd&) override { ended.set_value(Clock::now()); }
  std::promise<void> begun;
  std::promise<TimePoint> ended;
};

}  // namespace gantry::peer
