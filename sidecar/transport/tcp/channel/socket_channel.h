// The bytes of one connected, non-blocking TCP socket, plain or through TLS. Used by one thread at
// a time.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <memory>
#include <string>

#include "lib/base/clock.h"
#include "lib/base/result.h"
#include "lib/base/unique_fd.h"

namespace gantry::transport {

enum class IoState {
  kMoved,    // `bytes` of them, more than 0
  kBlocked,  // not now: wait for what events() says
  kEnded,    // closed by the other side, or broken: Why() says
};
struct IoResult {
  IoState state = IoState::kBlocked;
  size_t bytes = 0;
};

class SocketChannel {
 public:
  virtual ~SocketChannel() = default;
  // Before each Receive: does all that takes time, as decrypting, so that Receive only copies. Who
  // asks between the two whether the bytes may be placed, asks right before they are.
  virtual IoState Fetch() = 0;
  virtual IoResult Receive(const iovec* parts, int count) = 0;
  virtual IoResult Send(const iovec* parts, int count) = 0;
  // kMoved when both sides are ready for frames; to be called until then, or until kEnded.
  virtual IoResult Handshake() = 0;
  // Received and not taken yet, where poll does not see it.
  virtual bool HasReceived() const = 0;
  // A handshake or a Fetch that is blocked also waits for room to send.
  virtual bool ReceiveWantsSend() const = 0;
  // Why it ended; for people.
  virtual std::string Why() const = 0;
  virtual int fd() const = 0;
};

std::unique_ptr<SocketChannel> MakePlainChannel(UniqueFd socket);

// Makes channels of sockets; where there is none, they are plain. Thread-safe.
class ChannelSecurity {
 public:
  virtual ~ChannelSecurity() = default;
  virtual Result<std::unique_ptr<SocketChannel>> Accept(UniqueFd socket) = 0;
  // `certificate_sha256`: 32 bytes, of the one certificate that the other side is to show.
  virtual Result<std::unique_ptr<SocketChannel>> Connect(UniqueFd socket,
                                                         std::string certificate_sha256) = 0;
  // Of the certificate that Accept shows from now on.
  virtual Result<std::string> CertificateSha256() = 0;
};

}  // namespace gantry::transport
