// The peers that callers named: added, asked about and removed over REST. Owned here, implemented
// by peer/. Thread-safe; Put and Remove may block up to their deadline.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/clock.h"
#include "lib/base/result.h"
#include "lib/codec/buffer_types.h"

namespace gantry::engine {

enum class PeerState { kConnecting, kUp, kDown };
constexpr std::string_view NameOf(PeerState state) {
  switch (state) {
    case PeerState::kConnecting:
      return "connecting";
    case PeerState::kUp:
      return "up";
    case PeerState::kDown:
      break;
  }
  return "down";
}

struct PeerInfo {
  std::string name;
  std::string address;  // "unix:/path/of/peer.sock" or "host:port"
  PeerState state = PeerState::kConnecting;
  uint64_t generation = 0;              // of the peer's sidecar; 0 until it answered once
  std::string node_id;                  // boot id of the peer's node; empty until it answered once
  std::optional<wire::Path> path;       // the fastest that is available
  std::vector<wire::PathReport> paths;  // every path, fastest first, and why the others not
  uint64_t rtt_us = 0;                  // of the last exchange; 0 before there was one
  std::string version;                  // of the peer's sidecar
  int64_t since_unix_ms = 0;            // when it came into `state`
  std::optional<Error> error;           // why it is not up
};

class PeerControl {
 public:
  virtual ~PeerControl() = default;

  // Adds the peer and waits until it is up or `deadline`; a peer that does not answer in time is
  // kept and goes on connecting, and the answer says so. The same address again is no change;
  // another one is a new peer, and what was mapped of the old one is unmapped first, for which
  // there are some seconds even if the deadline is sooner.
  virtual Result<PeerInfo> Put(std::string_view name, std::string_view address,
                               TimePoint deadline) = 0;
  virtual Result<PeerInfo> Get(std::string_view name) const = 0;
  virtual std::vector<PeerInfo> List() const = 0;  // by name
  // Stops the transfers with the peer, unmaps its memory, then forgets it. At the deadline it
  // returns kDeadlineExceeded and the peer stays, down: call again.
  virtual Status Remove(std::string_view name, TimePoint deadline) = 0;
};

}  // namespace gantry::engine
