// The engine's limits, and its totals. Plain values.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lib/base/clock.h"
#include "lib/wire/session_times.h"

namespace gantry::engine {

struct EngineOptions {
  size_t transfers_max = 4096;                // not yet terminal
  size_t descriptors_max = 1'048'576;         // per transfer, before merging
  size_t descriptors_queued_max = 4'194'304;  // over all non-terminal transfers, after merging
  size_t references_max = 4096;               // buffers per side that one transfer names
  size_t peer_waits_max = 32;                 // admissions that wait for peers at the same time
  size_t views_max = 16'384;
  size_t view_pairs_max = 1'048'576;  // total over all views
  size_t failed_items_max = 4096;     // listed in the status of a failed transfer
  size_t finished_kept_max = 16'384;  // terminal transfers kept for queries
  milliseconds finished_ttl{300'000};
  milliseconds deadline_default{30'000};
  milliseconds deadline_max{3'600'000};
  milliseconds quiesce_max = wire::kQuiesceMax;  // after the deadline; then workers are killed
  // How long a caller drives its transfer: a small one finishes sooner than its thread could be
  // woken.
  microseconds driver_spin{100};
  uint64_t chunk_bytes_max = 1 << 20;  // longer runs are cut, so that workers share them
};

struct EngineTotals {
  size_t queued = 0;
  size_t running = 0;
  uint64_t bytes_inflight = 0;
};

}  // namespace gantry::engine
