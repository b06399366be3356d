// The ends of a data connection by hand: an initiator that says what a test wants it to say, and a
// target that accepts connections and does with them what a test wants. Used by one thread.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "sidecar/transport/tcp/channel/crc32c.h"
#include "sidecar/transport/tcp/channel/monotonic_clock.h"
#include "sidecar/transport/tcp/channel/tcp_frame.h"
#include "sidecar/transport/tcp/channel/tcp_socket.h"

namespace gantry::transport {

// One socket, blocking up to a limit.
class RawConnection {
 public:
  RawConnection() = default;
  explicit RawConnection(UniqueFd socket) : socket_(std::move(socket)) {}
  static RawConnection To(uint16_t port) {
    auto socket = ConnectTcp("127.0.0.1", port, Clock::now() + milliseconds(5000));
    EXPECT_TRUE(socket);
    return RawConnection(socket ? std::move(socket->socket) : UniqueFd());
  }

  bool Send(std::string_view bytes) {
    while (!bytes.empty()) {
      if (!AwaitSocket(socket_.get(), true, Clock::now() + milliseconds(5000))) return false;
      const ssize_t sent = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent < 0 && errno == EAGAIN) continue;
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
  }
  // Exactly so many bytes; fewer when the other side closed or said nothing for `time`.
  std::string Receive(size_t bytes, milliseconds time = milliseconds(5000)) {
    const TimePoint until = Clock::now() + time;
    std::string text;
    while (text.size() < bytes) {
      std::array<char, 65536> part;
      if (!AwaitSocket(socket_.get(), false, until)) break;
      const ssize_t got =
          ::recv(socket_.get(), part.data(), std::min(part.size(), bytes - text.size()), 0);
      if (got < 0 && errno == EAGAIN) continue;
      if (got <= 0) break;
      text.append(part.data(), static_cast<size_t>(got));
    }
    return text;
  }
  // True when the other side ends the connection within `time`; what it says before is dropped.
  bool IsEnded(milliseconds time = milliseconds(5000)) {
    const TimePoint until = Clock::now() + time;
    std::array<char, 65536> part;
    while (AwaitSocket(socket_.get(), false, until)) {
      const ssize_t got = ::recv(socket_.get(), part.data(), part.size(), 0);
      if (got == 0 || (got < 0 && errno != EAGAIN)) return true;
    }
    return false;
  }

  static std::string FrameOf(FrameHeader header, std::string_view control,
                             std::string_view payload = {}) {
    header.control_bytes = static_cast<uint32_t>(control.size());
    header.control_crc = Crc32c(0, control.data(), control.size());
    header.payload_bytes = static_cast<uint32_t>(payload.size());
    header.payload_crc = Crc32c(0, payload.data(), payload.size());
    std::string text(kFrameHeaderBytes, '\0');
    EncodeHeader(header, std::span<std::byte, kFrameHeaderBytes>(
                             reinterpret_cast<std::byte*>(text.data()), kFrameHeaderBytes));
    return text.append(control).append(payload);
  }
  static std::string HelloOf(const std::string& ticket) {
    FrameHeader header;
    header.type = FrameType::kHello;
    HelloBody body;
    body.ticket = ticket;
    return FrameOf(header, EncodeHello(body));
  }
  static std::string RequestOf(FrameType type, const RequestBody& body,
                               std::string_view payload = {}, uint64_t lease_end = UINT64_MAX) {
    FrameHeader header;
    header.type = type;
    header.request = 7;
    header.clock = lease_end;
    header.has_payload_crc = true;
    return FrameOf(header, EncodeRequest(body), payload);
  }
  static RequestBody BodyOf(const std::string& buffer, uint64_t generation, uint64_t offset,
                            uint32_t length) {
    RequestBody body;
    body.sections = {{buffer, generation, 0, 1}};
    body.ranges = {{offset, length}};
    body.bytes = length;
    return body;
  }

  struct Frame {
    FrameHeader header;
    std::string control;
    std::string payload;
  };
  // The next frame, as `reader` may receive it.
  std::optional<Frame> Next(FrameReader reader, milliseconds time = milliseconds(5000)) {
    const std::string bytes = Receive(kFrameHeaderBytes, time);
    if (bytes.size() < kFrameHeaderBytes) return std::nullopt;
    auto header = DecodeHeader(std::span<const std::byte, kFrameHeaderBytes>(
                                   reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()),
                               reader);
    if (!header) return std::nullopt;
    Frame frame;
    frame.header = *header;
    frame.control = Receive(header->control_bytes, time);
    frame.payload = Receive(header->payload_bytes, time);
    return frame;
  }
  // Shows the ticket and takes the welcome.
  bool Enter(const std::string& ticket) {
    Send(HelloOf(ticket));
    const auto welcome = Next(FrameReader::kInitiator);
    return welcome && welcome->header.status == FrameStatus::kOk;
  }
  // Lets an initiator in, as a target.
  bool Welcome(uint64_t clock = MonotonicNanoseconds(), uint16_t version = kTcpVersion) {
    if (!Next(FrameReader::kTarget)) return false;
    FrameHeader header;
    header.type = FrameType::kWelcome;
    header.clock = clock;
    WelcomeBody body;
    body.version = version;
    body.requests_max = 64;
    return Send(FrameOf(header, EncodeWelcome(body)));
  }
  int fd() const { return socket_.get(); }
  void Close() { socket_.reset(); }

 private:
  UniqueFd socket_;
};

// The code of a refusal; nothing when the frame is none.
inline std::optional<ErrorCode> RefusalOf(const std::optional<RawConnection::Frame>& frame) {
  if (!frame || frame->header.status != FrameStatus::kRefused) return std::nullopt;
  const auto problem = DecodeProblem(std::as_bytes(std::span(frame->control)));
  if (!problem) return std::nullopt;
  return problem->code;
}

// A target by hand, for one connection after the other.
class RawTarget {
 public:
  RawTarget() : bound_(*ListenTcp("127.0.0.1", 0)) {}
  uint16_t port() const { return bound_.port; }
  RawConnection Accept() {
    if (!AwaitSocket(bound_.socket.get(), false, Clock::now() + milliseconds(5000))) {
      ADD_FAILURE() << "nobody connects";
      return RawConnection();
    }
    auto accepted = AcceptTcp(bound_.socket.get());
    return RawConnection(std::move(accepted->socket));
  }

 private:
  BoundSocket bound_;
};

}  // namespace gantry::transport
