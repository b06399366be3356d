// An operator's settings of the rdma transport. A plain value.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lib/base/clock.h"
#include "lib/wire/session_times.h"

namespace gantry::transport {

struct RdmaOptions {
  std::vector<std::string> devices;  // names; empty: all with an active port
  std::vector<std::string> offered;  // used if `devices` is empty; not all have to work
  uint8_t port = 1;
  int gid_index = -1;              // -1: chosen
  uint32_t mtu = 0;                // bytes, upper limit; 0: the port's
  uint64_t chunk_bytes = 0;        // per memory region; 0: the device's limit
  int queue_pairs = 2;             // per peer and device
  uint32_t work_requests = 128;    // in flight, per queue pair
  uint64_t slice_bytes = 1 << 20;  // upper limit per work request
  uint32_t inline_bytes = 0;       // longest inline write of host memory; 0: none
  uint8_t timeout = 14;            // local ACK timeout: 4.096 us * 2^timeout
  uint8_t retries = 6;             // retry_cnt; soft-RoCE takes 7 for endless
  uint8_t rnr_retries = 7;
  uint8_t hop_limit = 64;
  uint8_t traffic_class = 0;
  uint8_t service_level = 0;
  bool relaxed_ordering = false;
  // Lifetime of the owner's ends after their initiator's session has ended.
  milliseconds lease = wire::kQueuePairLease;
  // Polling for completions before waiting for an event.
  microseconds spin{50};

  // Upper bound of the time until a device gives up an unresponsive peer. Hardware may take four
  // times the configured time (InfiniBand specification 1.4, 9.7.6.1.3). At most 10 s, since 0
  // means endless.
  milliseconds RetryTime() const;
};

}  // namespace gantry::transport
