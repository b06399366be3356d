// The peers that callers registered over REST: add, query, remove. This folder owns the interface;
// peer/ implements it. Thread-safe; Put and Remove may block until their deadline.
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
  uint64_t generation = 0;              // the peer's sidecar's; 0 until it has answered once
  std::string node_id;                  // the peer's boot id; empty until it has answered once
  std::optional<wire::Path> path;       // the fastest available one
  std::vector<wire::PathReport> paths;  // every path, fastest first, with reasons
  uint64_t rtt_us = 0;                  // of the last exchange; 0: none yet
  std::string version;                  // the peer's sidecar's
  int64_t since_unix_ms = 0;            // start of the current `state`
  std::optional<Error> error;           // why it is not up
};

class PeerControl {
 public:
  virtual ~PeerControl() = default;

  // Adds the peer and waits until it is up or the deadline. A peer that does not answer in time is
  // kept, continues connecting, and the result says so. Equal addresses change nothing. Another
  // address is a new peer. The old one's memory is unmapped first; this may take some seconds
  // beyond `deadline`.
  virtual Result<PeerInfo> Put(std::string_view name, std::string_view address,
                               TimePoint deadline) = 0;
  virtual Result<PeerInfo> Get(std::string_view name) const = 0;
  virtual std::vector<PeerInfo> List() const = 0;  // sorted by name
  // Stops transfers with the peer, unmaps its memory, then forgets it. At the deadline it returns
  // kDeadlineExceeded and the peer stays, down: call again.
  virtual Status Remove(std::string_view name, TimePoint deadline) = 0;
};

}  // namespace gantry::engine
