// The gRPC channel of one session with a peer: over a socket in the node directory, or over
// authenticated TCP. Stateless; thread-safe.
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
#include "lib/wire/session_times.h"
#include "sidecar/peer/identity/peer_address.h"
#include "sidecar/peer/identity/peer_security.h"

namespace gantry::peer {

struct PeerChannelOptions {
  UidSet uids_allowed;                           // owners of sockets, beside our own user and root
  std::shared_ptr<PeerSecurity> security;        // for TCP; null: loopback only
  milliseconds silence_max = wire::kSilenceMax;  // time until a vanished peer is noticed
};

struct PeerChannel {
  std::shared_ptr<grpc::Channel> channel;
  std::string host;           // over TCP: the address in use, of those that the name resolves to
  std::string authorization;  // for each call's metadata; empty: none
};

// Checks that the settings allow a connection to this address.
Status CheckMayReach(const PeerAddress& address, const PeerSecurity* security);

// Over TCP the first call connects. A name with several addresses gets the one that accepted first.
Result<PeerChannel> MakePeerChannel(const PeerAddress& address, const PeerChannelOptions& options,
                                    TimePoint deadline, const net::Cancelled& cancelled);

// Connects to a socket of the node directory and checks its owner. Never blocks: a peer with a full
// backlog counts as unresponsive.
Result<UniqueFd> ConnectChecked(const std::string& path, int type, const UidSet& uids_allowed);

}  // namespace gantry::peer
