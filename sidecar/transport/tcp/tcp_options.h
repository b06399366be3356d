// The settings of the tcp transport, both sides. Plain values.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lib/base/clock.h"
#include "lib/wire/session_times.h"

namespace gantry::transport {

struct TcpOptions {
  int streams_per_peer = 4;
  // Checksums the moved bytes. Off saves time on trusted networks; headers and ranges always have
  // one.
  bool checksum = true;

  bool tls_required = false;  // refuses plain connections

  // Bounds of one request's payload. Operations are cut so that every stream gets a part.
  uint64_t part_bytes_max = 512 << 10;
  uint64_t part_bytes_min = 64 << 10;
  // Bounds of the bytes that one stream has requested and not received. They limit how long a stop
  // takes and how much a cancelled transfer still moves. The minimum applies to short round trips,
  // so that data waiting in sockets fits the cache: see WindowFor.
  uint64_t window_bytes_min = 1 << 20;
  uint64_t window_bytes_max = 4 << 20;
  size_t window_requests = 16;

  milliseconds connect_timeout{3'000};  // until a stream is accepted
  milliseconds check_timeout{2'000};    // for a connection that only checks
  milliseconds check_again{30'000};     // delay after a failed check, while no transfer tries
  milliseconds backoff_min{100};        // after a failed attempt, doubling
  milliseconds backoff_max{5'000};
  // Both sides drop a connection with requests in flight that moves no byte for this long.
  milliseconds progress_timeout{5'000};
  milliseconds ping_interval{2'000};  // on an idle stream

  // The target applies a part of a write only for this long, by its own clock. After a broken
  // connection a write is quiet once this and the margin have passed. The margin covers clock drift
  // and steps that the target had begun.
  milliseconds lease = wire::kPartLease;
  milliseconds lease_margin = wire::kPartLeaseMargin;
};

struct TcpServerOptions {
  size_t connections_max = 1024;
  size_t unauthenticated_max = 64;  // connections without a ticket yet
  milliseconds hello_timeout{2'000};
  size_t streams_per_session_max = 32;
  size_t tickets_per_session_max = 64;  // issued, not used yet
  size_t requests_max = 64;             // read and not answered, per connection
  milliseconds progress_timeout{5'000};
  milliseconds idle_timeout{15'000};      // initiators ping more often
  milliseconds request_time_max{20'000};  // a buffer is held no longer for one request
  milliseconds lease_max{20'000};         // longer leases are cut to this
};

// Returns the bytes that one stream keeps in flight at this round trip. Enough for 4 GB/s, within
// the options' bounds. 0: unknown round trip, which gets the maximum.
uint64_t WindowFor(const TcpOptions& options, microseconds round_trip);

}  // namespace gantry::transport
