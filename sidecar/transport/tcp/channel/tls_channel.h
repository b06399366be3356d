// One connection through OpenSSL. Its writes never raise SIGPIPE. Used by one thread at a time.
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
  // REQUIRES that `ssl` was set to its role. The handshake fails unless the other side presents the
  // certificate with this SHA-256 (raw bytes). Empty accepts any trusted one.
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
  // Interprets a call that moved nothing.
  IoResult Stopped(int outcome);

  const UniqueFd socket_;
  const SslPointer ssl_;
  const std::string expected_;
  bool receive_wants_send_ = false;
  std::string why_;
};

inline constexpr size_t kSha256Bytes = 32;
std::string Sha256Of(const x509_st* certificate);  // empty: there is none

// Returns the oldest error of this thread's OpenSSL queue as text, and empties the queue.
std::string TakeTlsError();

}  // namespace gantry::transport
