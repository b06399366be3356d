// Peers' sessions with this sidecar, for code that lets peers execute transfers. Thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lib/base/clock.h"

namespace gantry::peer {

class InitiatorSessions {
 public:
  virtual ~InitiatorSessions() = default;

  // Returns proofs for a peer that it has a session with this sidecar. Each session of initiators
  // with this generation and verified identity has one (see VerifiedIdentity). So no proof reaches
  // another peer. Empty: it has no session.
  virtual std::vector<std::string> ProofsFor(uint64_t initiator_generation,
                                             const std::string& verified_identity) const = 0;
  // Ends those sessions and returns them. The peer may open new ones at once.
  virtual std::vector<std::string> EndSessionsOf(uint64_t initiator_generation,
                                                 const std::string& verified_identity) = 0;
  // True when these sessions can access none of our memory any more; false at the deadline.
  virtual bool AwaitUnmapped(const std::vector<std::string>& sessions, TimePoint deadline) = 0;
};

}  // namespace gantry::peer
