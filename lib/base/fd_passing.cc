#include "lib/base/fd_passing.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <utility>

namespace gantry {
namespace {

constexpr size_t kControlBytes =
    CMSG_SPACE(kFdsPerMessageMax * sizeof(int)) + CMSG_SPACE(sizeof(struct ucred));

Result<sockaddr_un> AddressOf(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path)) {
    return Fail(ErrorCode::kInvalidArgument,
                "socket path '" + path + "' has " + std::to_string(path.size()) +
                    " bytes; a Unix socket takes 1 to " +
                    std::to_string(sizeof(address.sun_path) - 1),
                "use a shorter directory");
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

Status RemoveStaleSocket(const std::string& path) {
  struct stat info = {};
  if (::lstat(path.c_str(), &info) != 0) return {};
  if (!S_ISSOCK(info.st_mode)) {
    return Fail(ErrorCode::kInvalidArgument, "'" + path + "' exists and is not a socket",
                "remove it or choose another path");
  }
  if (::unlink(path.c_str()) == 0 || errno == ENOENT) return {};
  Error error = SystemError(
      ErrorCode::kConflict,
      "cannot remove the socket '" + path + "' of user " + std::to_string(info.st_uid), errno);
  error.hint = "remove it, as that user or as root, or choose another path";
  return Fail(std::move(error));
}

void TakeDescriptors(msghdr& header, std::vector<UniqueFd>* fds) {
  for (cmsghdr* control = CMSG_FIRSTHDR(&header); control != nullptr;
       control = CMSG_NXTHDR(&header, control)) {
    if (control->cmsg_level != SOL_SOCKET || control->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (control->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(control) + i * sizeof(int), sizeof(int));
      fds->emplace_back(fd);
    }
  }
}

// The hint for a connect that failed.
std::string AdviceFor(int error_number) {
  switch (error_number) {
    case ENOENT:
    case ENOTDIR:
      return "is the sidecar running, and is its run directory mounted here?";
    case EACCES:
    case EPERM:
      return "user " + std::to_string(::geteuid()) +
             " may not use this socket: run as the user of the sidecar, in its group, or as root";
    case ECONNREFUSED:
      return "nobody listens there: the sidecar has ended, or it is the path of something else";
    case EPROTOTYPE:
      return "it is another socket of the sidecar: the API socket is api.sock in its run directory";
    default:
      return {};
  }
}

}  // namespace

Status SendMessage(int socket, std::string_view payload, std::span<const int> fds) {
  if (payload.empty() || fds.size() > kFdsPerMessageMax) {
    return Fail(ErrorCode::kInvalidArgument, "a message has a payload and at most " +
                                                 std::to_string(kFdsPerMessageMax) +
                                                 " descriptors");
  }
  iovec data = {const_cast<char*>(payload.data()), payload.size()};
  alignas(cmsghdr) std::array<char, kControlBytes> control = {};
  msghdr header = {};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  if (!fds.empty()) {
    header.msg_control = control.data();
    header.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(rights), fds.data(), fds.size_bytes());
  }
  ssize_t sent = 0;
  do {
    sent = ::sendmsg(socket, &header, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  if (sent < 0) {
    const bool full = errno == EAGAIN || errno == EWOULDBLOCK;
    return Fail(
        SystemError(full ? ErrorCode::kDeadlineExceeded : ErrorCode::kPeerLost, "sendmsg", errno));
  }
  return {};
}

Result<FdMessage> ReceiveMessage(int socket, size_t payload_bytes_max, std::string space) {
  FdMessage message;
  message.payload = std::move(space);
  message.payload.resize(payload_bytes_max + 1);  // one more, to see an oversized message
  iovec data = {message.payload.data(), message.payload.size()};
  alignas(cmsghdr) std::array<char, kControlBytes> control = {};
  msghdr header = {};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  ssize_t received = 0;
  do {
    received = ::recvmsg(socket, &header, MSG_CMSG_CLOEXEC);
  } while (received < 0 && errno == EINTR);
  if (received < 0) {
    const bool timeout = errno == EAGAIN || errno == EWOULDBLOCK;
    return Fail(SystemError(timeout ? ErrorCode::kDeadlineExceeded : ErrorCode::kPeerLost,
                            "recvmsg", errno));
  }
  TakeDescriptors(header, &message.fds);
  // There was room for as many as a message can have: this process may open no more.
  const bool cut = (header.msg_flags & MSG_CTRUNC) != 0;
  if (cut && message.fds.size() < kFdsPerMessageMax) {
    return Fail(SystemError(ErrorCode::kResourceExhausted, "receiving the descriptors of a message",
                            EMFILE));
  }
  if (cut || (header.msg_flags & MSG_TRUNC) != 0 ||
      static_cast<size_t>(received) > payload_bytes_max) {
    return Fail(ErrorCode::kMalformedBody, "a message is longer than " +
                                               std::to_string(payload_bytes_max) +
                                               " bytes or carries too many descriptors");
  }
  message.payload.resize(static_cast<size_t>(received));
  message.closed = received == 0;
  return message;
}

Result<PeerCredentials> CredentialsOf(int socket) {
  ucred credentials = {};
  socklen_t length = sizeof(credentials);
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0) {
    return Fail(SystemError(ErrorCode::kUnauthenticated, "SO_PEERCRED", errno));
  }
  return PeerCredentials{credentials.pid, credentials.uid, credentials.gid};
}

Result<UniqueFd> ListenUnix(const std::string& path, int type, mode_t mode, int backlog) {
  ASSIGN_OR_RETURN(const sockaddr_un address, AddressOf(path));
  RETURN_IF_ERROR(RemoveStaleSocket(path));
  UniqueFd fd(::socket(AF_UNIX, type | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return Fail(SystemError(ErrorCode::kResourceExhausted, "socket", errno));
  // Nobody can connect between bind and chmod: a socket that does not listen refuses.
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return Fail(SystemError(ErrorCode::kInvalidArgument, "bind " + path, errno));
  }
  // A link that somebody put in its place is not followed.
  if (::fchmodat(AT_FDCWD, path.c_str(), mode, AT_SYMLINK_NOFOLLOW) != 0 ||
      ::listen(fd.get(), backlog) != 0) {
    return Fail(SystemError(ErrorCode::kInternal, "listen " + path, errno));
  }
  return fd;
}

Result<UniqueFd> ConnectUnix(const std::string& path, int type, milliseconds timeout) {
  ASSIGN_OR_RETURN(const sockaddr_un address, AddressOf(path));
  UniqueFd fd(::socket(AF_UNIX, type | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return Fail(SystemError(ErrorCode::kResourceExhausted, "socket", errno));
  if (timeout.count() > 0) {
    const timeval limit = {timeout.count() / 1000, timeout.count() % 1000 * 1000};
    if (::setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)) != 0) {
      return Fail(SystemError(ErrorCode::kInternal, "SO_SNDTIMEO", errno));
    }
  }
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    if (errno == EAGAIN && timeout.count() > 0) {
      return Fail(ErrorCode::kDeadlineExceeded, "connect " + path + ": nobody accepted within " +
                                                    std::to_string(timeout.count()) + " ms");
    }
    const int why = errno;
    Error error = SystemError(ErrorCode::kPeerUnavailable, "connect " + path, why);
    error.hint = AdviceFor(why);
    return Fail(std::move(error));
  }
  return fd;
}

Result<std::array<UniqueFd, 2>> SocketPair(int type) {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    return Fail(SystemError(ErrorCode::kResourceExhausted, "socketpair", errno));
  }
  return std::array<UniqueFd, 2>{UniqueFd(ends[0]), UniqueFd(ends[1])};
}

}  // namespace gantry
