// A client of the hand-off socket for tests, polite or not. Used by one thread at a time.
#pragma once

#include <poll.h>
#include <sys/socket.h>

#include <string>
#include <utility>
#include <vector>

#include "lib/base/fd_passing.h"
#include "lib/codec/handoff_protocol.h"

namespace gantry::registry {

class HandoffClient {
 public:
  explicit HandoffClient(const std::string& path) {
    auto socket = ConnectUnix(path, SOCK_SEQPACKET);
    if (socket) socket_ = *std::move(socket);
    const timeval patience{.tv_sec = 20, .tv_usec = 0};
    ::setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  }

  bool connected() const { return socket_.valid(); }
  int socket() const { return socket_.get(); }
  void Close() { socket_.reset(); }

  Status Send(std::string_view text, const std::vector<int>& fds = {}) {
    return SendMessage(socket_.get(), text, fds);
  }
  // kPeerLost when the server closed.
  Result<wire::HandoffReply> Receive() {
    ASSIGN_OR_RETURN(const FdMessage message,
                     ReceiveMessage(socket_.get(), wire::kHandoffMessageBytesMax));
    if (message.closed) return Fail(ErrorCode::kPeerLost, "closed");
    return wire::DecodeHandoffReply(message.payload);
  }
  Result<wire::HandoffReply> Exchange(std::string_view text, const std::vector<int>& fds = {}) {
    RETURN_IF_ERROR(Send(text, fds));
    return Receive();
  }

  Result<wire::HandoffReply> Attach(const std::string& lease_token) {
    wire::HandoffRequest request;
    request.type = wire::HandoffType::kAttach;
    request.lease_token = lease_token;
    return Exchange(wire::Encode(request));
  }
  Result<wire::HandoffReply> HandOver(const std::vector<int>& fds) {
    wire::HandoffRequest request;
    request.type = wire::HandoffType::kFds;
    request.fd_count = fds.size();
    return Exchange(wire::Encode(request), fds);
  }
  Result<wire::HandoffReply> Release(std::vector<std::string> tokens) {
    wire::HandoffRequest request;
    request.type = wire::HandoffType::kRelease;
    request.tokens = std::move(tokens);
    return Exchange(wire::Encode(request));
  }
  Result<wire::HandoffReply> Ping() { return Exchange(wire::Encode(wire::HandoffRequest{})); }

 private:
  UniqueFd socket_;
};

}  // namespace gantry::registry
