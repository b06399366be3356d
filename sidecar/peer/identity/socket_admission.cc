#include "sidecar/peer/identity/socket_admission.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "lib/base/fd_passing.h"
#include "lib/base/log.h"

namespace gantry::peer {

Status CheckPeerUid(int socket, const UidSet& uids_allowed) {
  ASSIGN_OR_RETURN(const PeerCredentials credentials, CredentialsOf(socket));
  const uid_t uid = credentials.uid;
  if (uid == 0 || uid == ::geteuid() || uids_allowed.Has(uid)) return {};
  return Fail(
      ErrorCode::kPermissionDenied,
      "the other end runs as uid " + std::to_string(uid) + ", which is not allowed here",
      "run the sidecars of one node directory under one uid, or name this one in --node-uids of "
      "this sidecar");
}

UniqueFd AcceptAllowed(int listener, const UidSet& uids_allowed) {
  UniqueFd fd(::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!fd.valid()) return fd;
  if (Status status = CheckPeerUid(fd.get(), uids_allowed); !status) {
    log::Warning("a connection was turned away", {{"error", status.error()}});
    fd.reset();
    errno = EACCES;
  }
  return fd;
}

}  // namespace gantry::peer
