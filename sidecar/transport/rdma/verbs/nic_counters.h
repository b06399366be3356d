// A device's counters for this sidecar's transfers. The driving thread writes them once per batch;
// scrapes read them. Thread-safe; one thread uses a NicTally.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "sidecar/transport/rdma/verbs/verbs.h"

namespace gantry::transport {

inline constexpr size_t kDirections = 2;  // indexed by WorkOperation

// The work requests that completed together.
struct NicTally {
  std::array<uint64_t, kDirections> moved{};  // work requests without flushes
  std::array<uint64_t, kDirections> bytes{};  // of these
  uint64_t lost = 0;                          // to be sent again
  uint64_t ended = 0;                         // no longer in flight, including flushes

  void Moved(WorkOperation direction, uint64_t length) {
    ++moved[static_cast<size_t>(direction)];
    bytes[static_cast<size_t>(direction)] += length;
  }
};

struct NicCounters {
  // Cumulative.
  std::array<std::atomic<uint64_t>, kDirections> moved{};
  std::array<std::atomic<uint64_t>, kDirections> bytes{};
  std::atomic<uint64_t> lost = 0;
  // Current.
  std::atomic<uint64_t> in_flight = 0;
  std::atomic<uint64_t> queue_pairs = 0;  // of connections made from here

  void Count(const NicTally& tally) {
    for (size_t i = 0; i < kDirections; ++i) {
      if (tally.moved[i] == 0) continue;
      moved[i].fetch_add(tally.moved[i], std::memory_order_relaxed);
      bytes[i].fetch_add(tally.bytes[i], std::memory_order_relaxed);
    }
    if (tally.lost != 0) lost.fetch_add(tally.lost, std::memory_order_relaxed);
    if (tally.ended != 0) in_flight.fetch_sub(tally.ended, std::memory_order_relaxed);
  }
};

}  // namespace gantry::transport
