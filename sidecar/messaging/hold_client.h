// Starts transfers' reads of holds, at this sidecar or at a peer. Thread-safe.
#pragma once

#include <atomic>
#include <string>

#include "lib/base/clock.h"
#include "lib/base/mutex.h"
#include "lib/base/result.h"
#include "lib/wire/hold.h"
#include "sidecar/messaging/hold_reading.h"
#include "sidecar/messaging/hold_table.h"
#include "sidecar/remote/peer_messenger.h"

namespace gantry::engine {

class HoldClient {
 public:
  // `own` outlives it and every reading.
  explicit HoldClient(HoldTable& own) : own_(own) {}

  // Null: there are no peers, or none any more. REQUIRES for null that no admission waits for a
  // peer.
  void SetMessenger(PeerMessenger* messenger) EXCLUDES(mutex_);

  // Starts a read at the owner; one round trip for a peer (empty: this sidecar). The hold then
  // lasts until the reading ends, at most until `deadline` plus `quiesce`. Errors as
  // HoldTable::Use.
  Result<HoldReading> Read(const std::string& peer, wire::HoldUse use, TimePoint deadline,
                           milliseconds quiesce) EXCLUDES(mutex_);

 private:
  void End(const std::string& peer, uint64_t use, bool succeeded) EXCLUDES(mutex_);

  static constexpr size_t kWaitsMax = 32;  // callers' threads are few

  HoldTable& own_;
  std::atomic<size_t> waits_{0};
  Mutex mutex_;
  PeerMessenger* messenger_ GUARDED_BY(mutex_) = nullptr;
};

}  // namespace gantry::engine
