// One connection through OpenSSL. Its own output to the socket never raises SIGPIPE. Used by one
// thread at a time.
#pragma once

#include <memory>
#include <string>

#include "sidecar/transport/tcp/socket_channel.h"

struct ssl_st;

namespace gantry::transport {

struct FreeSsl {
  void operator()(ssl_st* ssl) const;
};
using SslPointer = std::unique_ptr<ssl_st, FreeSsl>;

class TlsChannel final : public SocketChannel {
 public:
  // REQUIRES that `ssl` knows which side it is.
  static Result<std::unique_ptr<TlsChannel>> Create(UniqueFd socket, SslPointer ssl);

  IoResult Receive(const iovec* parts, int count) override;
  IoResult Send(const iovec* parts, int count) override;
  IoResult Handshake() override;
  bool HasReceived() const override;
  bool ReceiveWantsSend() const override { return receive_wants_send_; }
  std::string Why() const override { return why_; }
  int fd() const override { return socket_.get(); }

 private:
  TlsChannel(UniqueFd socket, SslPointer ssl);
  // What a call that moved nothing means.
  IoResult Stopped(int outcome);

  const UniqueFd socket_;
  const SslPointer ssl_;
  bool receive_wants_send_ = false;
  std::string why_;
};

// The oldest error of this thread's OpenSSL queue, as text; empties the queue.
std::string TakeTlsError();

}  // namespace gantry::transport
