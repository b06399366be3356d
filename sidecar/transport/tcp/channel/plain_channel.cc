#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "sidecar/transport/tcp/channel/socket_channel.h"

namespace gantry::transport {
namespace {

class PlainChannel final : public SocketChannel {
 public:
  explicit PlainChannel(UniqueFd socket) : socket_(std::move(socket)) {}

  IoState Fetch() override { return IoState::kMoved; }  // the kernel has them ready
  IoResult Receive(const iovec* parts, int count) override {
    msghdr message = MessageOf(parts, count);
    ssize_t bytes = 0;
    do {
      bytes = ::recvmsg(socket_.get(), &message, 0);
    } while (bytes < 0 && errno == EINTR);
    if (bytes == 0) return End("the other side closed the connection");
    return ResultOf(bytes);
  }
  IoResult Send(const iovec* parts, int count) override {
    const msghdr message = MessageOf(parts, count);
    ssize_t bytes = 0;
    do {
      bytes = ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL);
    } while (bytes < 0 && errno == EINTR);
    return ResultOf(bytes);
  }
  IoResult Handshake() override { return {IoState::kMoved, 0}; }
  bool HasReceived() const override { return false; }
  bool ReceiveWantsSend() const override { return false; }
  std::string Why() const override { return why_; }
  int fd() const override { return socket_.get(); }

 private:
  static msghdr MessageOf(const iovec* parts, int count) {
    msghdr message = {};
    message.msg_iov = const_cast<iovec*>(parts);
    message.msg_iovlen = static_cast<size_t>(count);
    return message;
  }
  IoResult ResultOf(ssize_t bytes) {
    if (bytes >= 0) return {IoState::kMoved, static_cast<size_t>(bytes)};
    if (errno == EAGAIN || errno == EWOULDBLOCK) return {IoState::kBlocked, 0};
    return End(SystemError(ErrorCode::kPeerLost, "the connection broke", errno).message);
  }
  IoResult End(std::string why) {
    why_ = std::move(why);
    return {IoState::kEnded, 0};
  }

  const UniqueFd socket_;
  std::string why_;
};

}  // namespace

std::unique_ptr<SocketChannel> MakePlainChannel(UniqueFd socket) {
  return std::make_unique<PlainChannel>(std::move(socket));
}

}  // namespace gantry::transport
