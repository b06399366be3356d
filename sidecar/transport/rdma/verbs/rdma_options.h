// How the rdma transport uses the devices: what an operator may set. A plain value.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lib/base/clock.h"
#include "lib/wire/session_times.h"

namespace gantry::transport {

struct RdmaOptions {
  std::vector<std::string> devices;  // by name; empty: all that have an active port
  std::vector<std::string> offered;  // then these alone, if there are some; not all have to work
  uint8_t port = 1;
  int gid_index = -1;              // -1: chosen
  uint32_t mtu = 0;                // bytes, at most; 0: as the port says
  uint64_t chunk_bytes = 0;        // of a memory region; 0: as the device says
  int queue_pairs = 2;             // to each peer, for each device
  uint32_t work_requests = 128;    // in flight, for each queue pair
  uint64_t slice_bytes = 1 << 20;  // of a work request, at most
  uint32_t inline_bytes = 0;       // of a write of host memory that is posted inline; 0: none is
  uint8_t timeout = 14;            // local ACK timeout: 4.096 us * 2^timeout
  uint8_t retries = 6;             // retry_cnt; soft-RoCE takes 7 for endless
  uint8_t rnr_retries = 7;
  uint8_t hop_limit = 64;
  uint8_t traffic_class = 0;
  uint8_t service_level = 0;
  bool relaxed_ordering = false;
  // Of the owner's ends, after the session of their initiator has ended.
  milliseconds lease = wire::kQueuePairLease;
  // Looking for completions, until an event is waited for.
  microseconds spin{50};

  // Within this a device gives up a peer that does not answer; hardware may take four times what
  // was asked for (InfiniBand specification 1.4, 9.7.6.1.3). At most 10 s, as 0 means endless.
  milliseconds RetryTime() const;
};

}  // namespace gantry::transport
