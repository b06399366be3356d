// The byte stream of one connected, non-blocking TCP socket, plain or through TLS. Used by one
// thread at a time.
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
  kMoved,    // moved `bytes`, more than 0
  kBlocked,  // not now: poll fd(), see ReceiveWantsSend
  kEnded,    // closed by the other side or broken: see Why()
};
struct IoResult {
  IoState state = IoState::kBlocked;
  size_t bytes = 0;
};

class SocketChannel {
 public:
  virtual ~SocketChannel() = default;
  // Call before each Receive. Does the slow work, such as decryption, so that Receive only copies.
  // A check between the two calls is therefore made right before the bytes are placed.
  virtual IoState Fetch() = 0;
  virtual IoResult Receive(const iovec* parts, int count) = 0;
  virtual IoResult Send(const iovec* parts, int count) = 0;
  // kMoved when both sides are ready for frames. Call it until then, or until kEnded.
  virtual IoResult Handshake() = 0;
  // True when bytes were received that are not taken yet and that poll does not report.
  virtual bool HasReceived() const = 0;
  // True when a blocked Handshake or Fetch also waits for room to send.
  virtual bool ReceiveWantsSend() const = 0;
  // Why it ended, for people.
  virtual std::string Why() const = 0;
  virtual int fd() const = 0;
};

std::unique_ptr<SocketChannel> MakePlainChannel(UniqueFd socket);

// Makes channels of sockets. Without one, connections are plain. Thread-safe.
class ChannelSecurity {
 public:
  virtual ~ChannelSecurity() = default;
  virtual Result<std::unique_ptr<SocketChannel>> Accept(UniqueFd socket) = 0;
  // `certificate_sha256` is the SHA-256, 32 bytes, of the only certificate to accept.
  virtual Result<std::unique_ptr<SocketChannel>> Connect(UniqueFd socket,
                                                         std::string certificate_sha256) = 0;
  // Returns the SHA-256 of the certificate that Accept presents from now on.
  virtual Result<std::string> CertificateSha256() = 0;
};

}  // namespace gantry::transport
