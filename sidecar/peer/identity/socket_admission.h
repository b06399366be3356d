// Who may connect to the sockets in the node's directory, checked against the kernel's word.
// Stateless; thread-safe.
#pragma once

#include "lib/base/result.h"
#include "lib/base/uid_set.h"
#include "lib/base/unique_fd.h"

namespace gantry::peer {

// The other end's uid must be this process's own, root, or one of `uids_allowed`.
Status CheckPeerUid(int socket, const UidSet& uids_allowed);

// The next waiting connection, non-blocking and close-on-exec. An invalid descriptor: none is
// waiting, or it was turned away (which is logged): errno tells which, EACCES the latter.
UniqueFd AcceptAllowed(int listener, const UidSet& uids_allowed);

}  // namespace gantry::peer
