// One session with a peer: its client, the paths that lead to the peer in it, and what is mapped in
// it. Thread-safe, except for the mappings.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lib/base/result.h"
#include "lib/codec/buffer_types.h"
#include "sidecar/peer/client/peer_client.h"
#include "sidecar/peer/link/buffer_import.h"
#include "sidecar/peer/link/peer_directory.h"
#include "sidecar/peer/link/session_mappings.h"

namespace gantry::peer {

class PeerSession {
 public:
  // Opens the paths to the peer, over a client that is open. It may take seconds, unless `given_up`
  // becomes true. `options` outlives the session.
  PeerSession(const PeerDirectoryOptions& options, std::string peer, uint64_t number,
              std::shared_ptr<PeerClient> client, const std::function<bool()>& given_up);

  uint64_t number() const { return number_; }
  const std::shared_ptr<PeerClient>& client() const { return client_; }
  const PeerClient::Facts& facts() const { return client_->facts(); }
  const PeerPaths& paths() const { return paths_; }
  // Used by the thread that has the turn to fetch.
  SessionMappings& mappings() { return mappings_; }

  // The peer's reports, without the paths that nothing here can take.
  std::vector<wire::PathReport> PathReports() const;
  // Fails when the path is known not to reach the peer now.
  Status CheckPath(wire::Path path) const;
  // Fails with the error of a call about buffers, as the caller of Acquire is to see it.
  tl::unexpected<Error> Failure(Error error) const;

  // Ends the calls and the paths. Mappings stay.
  void Close(const Error& why);

 private:
  void OpenPaths(const std::function<bool()>& given_up);

  const PeerDirectoryOptions& options_;
  const std::string peer_;
  const uint64_t number_;
  const std::shared_ptr<PeerClient> client_;
  PeerPaths paths_;
  SessionMappings mappings_;
};

}  // namespace gantry::peer
