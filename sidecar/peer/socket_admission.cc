#include "sidecar/peer/socket_admission.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "lib/base/fd_passing.h"
#include "lib/base/log.h"

namespace gantry::peer {

Status CheckPeerUid(int socket, const std::vector<uid_t>& uids_allowed) {
  ASSIGN_OR_RETURN(const PeerCredentials credentials, CredentialsOf(socket));
  const uid_t uid = credentials.uid;
  if (uid == 0 || uid == ::geteuid() ||
      std::find(uids_allowed.begin(), uids_allowed.end(), uid) != uids_allowed.end()) {
    return {};
  }
  return Fail(ErrorCode::kPermissionDenied,
              "the other end runs as uid " + std::to_string(uid) + ", which is not allowed here",
              "run the sidecars of one node directory under one uid, or allow this one");
}

UniqueFd AcceptAllowed(int listener, const std::vector<uid_t>& uids_allowed) {
  UniqueFd fd(::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!fd.valid()) return fd;
  if (Status status = CheckPeerUid(fd.get(), uids_allowed); !status) {
    log::Warning("a connection was turned away", {{"error", status.error()}});
    fd.reset();
    errno = EACCES;
  }
  return fd;
}

Result<UniqueFd> LockNodeFile(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd.valid()) return Fail(SystemError(ErrorCode::kInvalidArgument, "open " + path, errno));
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) == 0) return fd;
  if (errno != EWOULDBLOCK) return Fail(SystemError(ErrorCode::kInternal, "flock " + path, errno));
  return Fail(ErrorCode::kConflict, "another sidecar holds " + path,
              "give each sidecar of a node directory its own name");
}

}  // namespace gantry::peer
