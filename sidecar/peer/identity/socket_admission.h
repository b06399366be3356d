// Access control of the sockets in the node directory, by the kernel's peer credentials. Stateless;
// thread-safe.
#pragma once

#include "lib/base/result.h"
#include "lib/base/uid_set.h"
#include "lib/base/unique_fd.h"

namespace gantry::peer {

// Fails unless the other end's uid is this process's own, root, or in `uids_allowed`.
Status CheckPeerUid(int socket, const UidSet& uids_allowed);

// Accepts the next connection, non-blocking and close-on-exec. Invalid: see errno. EACCES means
// that it was refused, which is logged.
UniqueFd AcceptAllowed(int listener, const UidSet& uids_allowed);

}  // namespace gantry::peer
