// The settings of the tcp transport, both sides. Plain values.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lib/base/clock.h"

namespace gantry::transport {

struct TcpOptions {
  int streams_per_peer = 4;
  // Over the bytes that move. Off saves time where the network is trusted with them; headers and
  // ranges always have one.
  bool checksum = true;

  bool tls_required = false;  // plain connections are not made

  // Of one request, at most; an operation is cut so that every stream gets some of it.
  uint64_t part_bytes_max = 512 << 10;
  uint64_t part_bytes_min = 64 << 10;
  // Asked for and not answered, of one stream: bounds how long a stop takes, and what a cancelled
  // transfer still moves. The least where a round trip is short: what waits in sockets then fits
  // into the cache (WindowFor).
  uint64_t window_bytes_min = 1 << 20;
  uint64_t window_bytes_max = 4 << 20;
  size_t window_requests = 16;

  milliseconds connect_timeout{3'000};  // everything until a stream is accepted
  milliseconds check_timeout{2'000};    // likewise, of a connection that carries nothing
  milliseconds check_again{30'000};     // after one that failed, while no transfer tries
  milliseconds backoff_min{100};        // after a failed attempt, doubling
  milliseconds backoff_max{5'000};
  // With requests under way and no byte moved for so long a connection is given up, by both sides.
  milliseconds progress_timeout{5'000};
  milliseconds ping_interval{2'000};  // on a stream that has nothing else to say

  // The target applies a part of a write for so long, measured on its own clock. A write over a
  // connection that broke is quiet after this and the margin, which covers how differently two
  // clocks run and what the target had begun.
  milliseconds lease{3'000};
  milliseconds lease_margin{250};
};

struct TcpServerOptions {
  size_t connections_max = 1024;
  size_t strangers_max = 64;  // that have shown no ticket yet
  milliseconds hello_timeout{2'000};
  size_t streams_per_session_max = 32;
  size_t tickets_per_session_max = 64;  // issued and not used yet
  size_t requests_max = 64;             // read and not answered, of one connection
  milliseconds progress_timeout{5'000};
  milliseconds idle_timeout{15'000};      // an initiator pings more often
  milliseconds request_time_max{20'000};  // a buffer is held no longer for one request
  milliseconds lease_max{20'000};         // a longer one is cut
};

// What one stream keeps under way over a connection with this round trip: 4 GB/s, within the
// options' bounds. 0: it is not known, and the most is right.
uint64_t WindowFor(const TcpOptions& options, microseconds round_trip);

}  // namespace gantry::transport
