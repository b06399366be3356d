// The limits of the engine, and what it holds at a moment. Plain values.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lib/base/clock.h"

namespace gantry::engine {

struct EngineOptions {
  size_t transfers_max = 4096;                // not yet terminal
  size_t descriptors_max = 1'048'576;         // of one transfer, before merging
  size_t descriptors_queued_max = 4'194'304;  // of all that are not yet terminal, after merging
  size_t references_max = 4096;               // buffers that one transfer names on one side
  size_t peer_waits_max = 32;                 // admissions that wait for a peer at the same time
  size_t views_max = 16'384;
  size_t view_pairs_max = 1'048'576;  // of all views together
  size_t failed_items_max = 4096;     // named in the status of a transfer that failed
  size_t finished_kept_max = 16'384;  // terminal transfers that can still be asked for
  milliseconds finished_ttl{300'000};
  milliseconds deadline_default{30'000};
  milliseconds deadline_max{3'600'000};
  milliseconds quiesce_max{2'000};  // after the deadline; then workers are ended by force
  // A small transfer is done sooner than its caller's thread could be woken.
  microseconds answer_spin{50};
  uint64_t chunk_bytes_max = 1 << 20;  // a longer run is cut, so that workers share it
};

struct EngineTotals {
  size_t queued = 0;
  size_t running = 0;
  uint64_t bytes_inflight = 0;
};

}  // namespace gantry::engine
