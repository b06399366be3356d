// What a device does for this sidecar's transfers: written by the thread that drives them, once for
// a batch, and read at scrapes. Thread-safe; a NicTally is one thread's.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "sidecar/transport/rdma/verbs/verbs.h"

namespace gantry::transport {

inline constexpr size_t kDirections = 2;  // as WorkOperation numbers them

// Of work requests that came back together.
struct NicTally {
  std::array<uint64_t, kDirections> moved{};  // work requests; flushes are none
  std::array<uint64_t, kDirections> bytes{};  // of these
  uint64_t lost = 0;                          // that have to be sent again
  uint64_t ended = 0;                         // in flight no more, flushes among them

  void Moved(WorkOperation direction, uint64_t length) {
    ++moved[static_cast<size_t>(direction)];
    bytes[static_cast<size_t>(direction)] += length;
  }
};

struct NicCounters {
  // Ever.
  std::array<std::atomic<uint64_t>, kDirections> moved{};
  std::array<std::atomic<uint64_t>, kDirections> bytes{};
  std::atomic<uint64_t> lost = 0;
  // Now.
  std::atomic<uint64_t> in_flight = 0;
  std::atomic<uint64_t> queue_pairs = 0;  // of connections that were made from here

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
