// One message with file descriptors over a connected SOCK_SEQPACKET Unix socket (SCM_RIGHTS).
// Thread-safe for one sender and one receiver at a time.
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
  std::string payload;        // empty when `closed`
  std::vector<UniqueFd> fds;  // close-on-exec
  // The other side closed its end.
  bool closed = false;
};

// The process at the other end of a Unix socket, as the kernel recorded it at connect.
struct PeerCredentials {
  pid_t pid = 0;  // 0 when the peer's PID namespace is not visible from here
  uid_t uid = 0;
  gid_t gid = 0;
};

// Blocks up to SO_SNDTIMEO, or not at all on a non-blocking socket: then kDeadlineExceeded.
// kInvalidArgument: too many descriptors, or an empty payload, which would read as a close. Any
// other failure of the socket is kPeerLost.
Status SendMessage(int socket, std::string_view payload, std::span<const int> fds);
// Blocks up to SO_RCVTIMEO as SendMessage does. kMalformedBody: the payload is longer than
// `payload_bytes_max`. kResourceExhausted: this process may not open the descriptors. No descriptor
// leaks. `space` becomes the payload's storage; with capacity for payload_bytes_max + 1 bytes
// nothing is allocated.
Result<FdMessage> ReceiveMessage(int socket, size_t payload_bytes_max, std::string space = {});

Result<PeerCredentials> CredentialsOf(int socket);

// `type` is SOCK_STREAM or SOCK_SEQPACKET. Replaces a socket file at `path`, also one in use, but
// never another kind of file. Sets `mode` before anyone can connect. Paths are limited to 107
// bytes.
Result<UniqueFd> ListenUnix(const std::string& path, int type, mode_t mode, int backlog);
// Connect waits while the listener's backlog is full, up to `timeout` (0: without limit); then
// kDeadlineExceeded. kPeerUnavailable: the connection failed, and the hint says what to check.
Result<UniqueFd> ConnectUnix(const std::string& path, int type, milliseconds timeout = {});

// Returns two connected ends, close-on-exec; `type` may include SOCK_NONBLOCK.
Result<std::array<UniqueFd, 2>> SocketPair(int type);

}  // namespace gantry
