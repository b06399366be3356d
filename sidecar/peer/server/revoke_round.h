// One call of InitiatorTable::Revoke: the initiators that it told, and what became of each. Used
// under the table's lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "lib/base/clock.h"
#include "sidecar/peer/server/initiator_session.h"
#include "sidecar/registry/peer_release.h"

namespace gantry::peer {

class RevokeRound {
 public:
  using Sessions = std::map<std::string, InitiatorSession, std::less<>>;  // by session secret
  // Parallel to the revoked buffers: the outcome at each initiator that knew them.
  using Releases = std::vector<std::vector<registry::PeerRelease>>;

  explicit RevokeRound(milliseconds process_exit_grace) : process_exit_grace_(process_exit_grace) {}

  // Tells every session that knows one of the buffers. `last_number`: see InitiatorSession::Revoke.
  void SendRevocations(Sessions* sessions, const std::vector<RevokedBuffer>& buffers, TimePoint now,
                       milliseconds time, uint64_t* last_number);
  // Updates the outcomes. Returns true when no initiator holds a buffer any more.
  bool Update(const Sessions& sessions, TimePoint now);
  // Returns the indices of buffers that have to be refused now to those who hold them.
  std::set<size_t> ToRefuse(const Sessions& sessions, TimePoint now) const;
  // Returns the next time at which an initiator is refused, cut off, or considered unmapped.
  TimePoint NextChange(const Sessions& sessions) const;
  Releases TakeReleases(size_t buffers) &&;

 private:
  // A revoked buffer and a session that was told of it.
  struct Told {
    std::string session;
    std::string buffer_id;
    size_t index = 0;         // of the buffer
    uint64_t revocation = 0;  // 0: not sent, the stream is broken
    std::shared_ptr<const bool> cut_off;
    std::shared_ptr<const bool> refused;  // null: not sent
    registry::PeerRelease release;
  };

  registry::PeerOutcome OutcomeOf(const Sessions& sessions, const Told& told, TimePoint now) const;

  const milliseconds process_exit_grace_;
  std::vector<Told> told_;
};

}  // namespace gantry::peer
