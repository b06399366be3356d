// The connection of one session to a peer's API: over a socket in the node's directory, or over TCP
// with whatever proves who this sidecar is. Stateless; thread-safe.
#pragma once

#include <grpcpp/channel.h>
#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "lib/base/clock.h"
#include "lib/base/result.h"
#include "lib/base/uid_set.h"
#include "lib/base/unique_fd.h"
#include "lib/net/name_lookup.h"
#include "sidecar/peer/identity/peer_address.h"
#include "sidecar/peer/identity/peer_security.h"

namespace gantry::peer {

struct PeerChannelOptions {
  UidSet uids_allowed;                     // of a socket's owner, beside our own and root
  std::shared_ptr<PeerSecurity> security;  // for TCP; null: loopback alone
  milliseconds silence_max{5'000};         // a vanished peer is noticed within it
};

struct PeerChannel {
  std::shared_ptr<grpc::Channel> channel;
  std::string host;           // over TCP: the one address, of those of the name, that it goes to
  std::string authorization;  // for the metadata of each call; empty: none
};

// Whether the settings let this sidecar connect there at all.
Status CheckMayReach(const PeerAddress& address, const PeerSecurity* security);

// Over TCP the first call connects, to one address: of a name with several it is the one that took
// a connection first.
Result<PeerChannel> MakePeerChannel(const PeerAddress& address, const PeerChannelOptions& options,
                                    TimePoint deadline, const net::Cancelled& cancelled);

// A socket of the node's directory whose other end may be there. Connecting never waits: a peer
// whose backlog is full counts as one that does not answer.
Result<UniqueFd> ConnectChecked(const std::string& path, int type, const UidSet& uids_allowed);

}  // namespace gantry::peer
