// One message with file descriptors over a connected SOCK_SEQPACKET Unix socket (SCM_RIGHTS).
// Thread-safe as far as the socket is: one sender and one receiver at a time.
#pragma once

#include <sys/types.h>

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/clock.h"
#include "lib/base/result.h"
#include "lib/base/unique_fd.h"

namespace gantry {

// The kernel's limit of descriptors in one message (SCM_MAX_FD, linux/include/net/scm.h).
inline constexpr size_t kFdsPerMessageMax = 253;

struct FdMessage {
  std::string payload;        // empty together with `closed`: the other side closed
  std::vector<UniqueFd> fds;  // close-on-exec
  bool closed = false;
};

// Who is on the other end of a Unix socket, as the kernel saw it when it connected.
struct PeerCredentials {
  pid_t pid = 0;  // 0 when the peer's PID namespace is not visible from here
  uid_t uid = 0;
  gid_t gid = 0;
};

// Both block up to SO_SNDTIMEO and SO_RCVTIMEO, or not at all on a non-blocking socket, and answer
// kDeadlineExceeded then.
Status SendMessage(int socket, std::string_view payload, std::span<const int> fds);
// A payload over `payload_bytes_max` is kMalformedBody. Descriptors that this process may not open
// any more are kResourceExhausted. No descriptor leaks. `space`: of so many bytes and one more,
// when there must be no lack of memory by then.
Result<FdMessage> ReceiveMessage(int socket, size_t payload_bytes_max, std::string space = {});

Result<PeerCredentials> CredentialsOf(int socket);

// `type` is SOCK_STREAM or SOCK_SEQPACKET. Listen replaces a stale socket file, never another
// kind of file, and sets `mode` before anyone can connect. Paths are limited to 107 bytes.
Result<UniqueFd> ListenUnix(const std::string& path, int type, mode_t mode, int backlog);
// A listener that accepts nobody lets Connect wait, up to `timeout` (0: for good); then it is
// kDeadlineExceeded.
Result<UniqueFd> ConnectUnix(const std::string& path, int type, milliseconds timeout = {});

// Two ends that are connected to each other; `type` may have SOCK_NONBLOCK.
Result<std::array<UniqueFd, 2>> SocketPair(int type);

}  // namespace gantry
