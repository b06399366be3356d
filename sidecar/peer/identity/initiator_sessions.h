// The sessions that peers have with this sidecar, as those need them who have peers execute
// transfers. Thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lib/base/clock.h"

namespace gantry::peer {

class InitiatorSessions {
 public:
  virtual ~InitiatorSessions() = default;

  // Proofs for a peer that this sidecar is the one whose memory it has a session with: one for each
  // session of initiators that say to be this life of a sidecar and showed what it showed (see
  // ShownIdentity), so that nobody gets what is for another. Empty: it has none.
  virtual std::vector<std::string> ProofsFor(uint64_t initiator_generation,
                                             const std::string& shown) const = 0;
  // Ends those sessions and names them; the peer may open others at once.
  virtual std::vector<std::string> EndSessionsOf(uint64_t initiator_generation,
                                                 const std::string& shown) = 0;
  // True when nothing of ours can be touched through them any more, false at the deadline.
  virtual bool AwaitUnmapped(const std::vector<std::string>& sessions, TimePoint deadline) = 0;
};

}  // namespace gantry::peer
