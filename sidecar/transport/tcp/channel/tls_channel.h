// One connection through OpenSSL. Its own output to the socket never raises SIGPIPE. Used by one
// thread at a time.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "sidecar/transport/tcp/channel/socket_channel.h"

struct ssl_st;
struct x509_st;

namespace gantry::transport {

struct FreeSsl {
  void operator()(ssl_st* ssl) const;
};
using SslPointer = std::unique_ptr<ssl_st, FreeSsl>;

class TlsChannel final : public SocketChannel {
 public:
  // REQUIRES that `ssl` knows which side it is. The handshake fails unless the other side shows the
  // certificate with this SHA-256, in bytes; empty: any that is trusted.
  static Result<std::unique_ptr<TlsChannel>> Create(UniqueFd socket, SslPointer ssl,
                                                    std::string certificate_sha256);

  IoState Fetch() override;
  IoResult Receive(const iovec* parts, int count) override;
  IoResult Send(const iovec* parts, int count) override;
  IoResult Handshake() override;
  bool HasReceived() const override;
  bool ReceiveWantsSend() const override { return receive_wants_send_; }
  std::string Why() const override { return why_; }
  int fd() const override { return socket_.get(); }

 private:
  TlsChannel(UniqueFd socket, SslPointer ssl, std::string certificate_sha256);
  // What a call that moved nothing means.
  IoResult Stopped(int outcome);

  const UniqueFd socket_;
  const SslPointer ssl_;
  const std::string expected_;
  bool receive_wants_send_ = false;
  std::string why_;
};

inline constexpr size_t kSha256Bytes = 32;
std::string Sha256Of(const x509_st* certificate);  // empty: there is none

// The oldest error of this thread's OpenSSL queue, as text; empties the queue.
std::string TakeTlsError();

}  // namespace gantry::transport
