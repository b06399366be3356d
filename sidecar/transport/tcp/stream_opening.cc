#include <array>
#include <utility>

#include "sidecar/transport/tcp/channel/tcp_socket.h"
#include "sidecar/transport/tcp/initiator_stream.h"

namespace gantry::transport {
namespace {

// Takes the welcome, and nothing after it.
class WelcomeSink final : public FrameSink {
 public:
  Status OnHeader(const FrameHeader& header) override {
    if (header.type == FrameType::kWelcome && !header_) return {};
    return Fail(ErrorCode::kMalformedBody, "the peer says something else than welcome");
  }
  Result<ScatterList*> OnControl(const FrameHeader& header,
                                 std::span<const std::byte> control) override {
    if (header.status == FrameStatus::kRefused) {
      ASSIGN_OR_RETURN(Error refusal, DecodeProblem(control));
      return Fail(std::move(refusal));
    }
    ASSIGN_OR_RETURN(body_, DecodeWelcome(control));
    return nullptr;
  }
  bool MayPlace() override { return true; }
  Status OnFrame(const FrameHeader& header, Outcome) override {
    header_ = header;
    return {};
  }
  bool Full() const override { return header_.has_value(); }

  const std::optional<FrameHeader>& header() const { return header_; }
  const WelcomeBody& body() const { return body_; }

 private:
  std::optional<FrameHeader> header_;
  WelcomeBody body_;
};

Status Secure(SocketChannel& channel, TimePoint deadline) {
  while (true) {
    const IoResult result = channel.Handshake();
    if (result.state == IoState::kMoved) return {};
    if (result.state == IoState::kEnded) return Fail(ErrorCode::kUnauthenticated, channel.Why());
    RETURN_IF_ERROR(AwaitSocket(channel.fd(), channel.ReceiveWantsSend(), deadline));
  }
}

Status SayHello(SocketChannel& channel, const std::string& ticket, TimePoint deadline) {
  HelloBody hello;
  hello.ticket = ticket;
  FrameHeader header;
  header.type = FrameType::kHello;
  FrameSender sender;
  sender.Begin(header, EncodeHello(hello), nullptr, false);
  while (true) {
    const IoState state = sender.Pump(channel);
    if (state == IoState::kMoved) return {};
    if (state == IoState::kEnded) return Fail(ErrorCode::kPeerLost, channel.Why());
    RETURN_IF_ERROR(AwaitSocket(channel.fd(), /*to_send=*/true, deadline));
  }
}

// Secures the connection, shows the ticket, and takes the welcome.
Status Greet(const std::string& ticket, TimePoint deadline, WelcomedChannel* welcomed) {
  RETURN_IF_ERROR(Secure(*welcomed->channel, deadline));
  RETURN_IF_ERROR(SayHello(*welcomed->channel, ticket, deadline));
  WelcomeSink sink;
  FrameReceiver receiver(FrameReader::kInitiator, sink);
  while (!sink.header()) {
    ASSIGN_OR_RETURN(const FrameReceiver::Next next,
                     receiver.Pump(*welcomed->channel, kFrameControlBytesMax));
    if (sink.header()) break;
    if (next == FrameReceiver::Next::kBlocked) {
      RETURN_IF_ERROR(AwaitSocket(welcomed->channel->fd(), false, deadline));
    }
  }
  // Nothing was asked, so nothing more may have come.
  if (receiver.within_frame()) {
    return Fail(ErrorCode::kMalformedBody, "the peer says more than welcome");
  }
  if (sink.body().version < kTcpVersionMin || sink.body().version > kTcpVersion) {
    return Fail(ErrorCode::kVersionMismatch, "the peer chose a version that was not offered");
  }
  welcomed->peer_clock = sink.header()->clock;
  welcomed->peer_clock_read_at = Clock::now();
  welcomed->version = sink.body().version;
  welcomed->requests_max = sink.body().requests_max;
  return {};
}

}  // namespace

Result<WelcomedChannel> OpenChannel(const TcpStreamOpener::Offer& offer, const std::string& ticket,
                                    ChannelSecurity* security, TimePoint deadline,
                                    const net::Cancelled& cancelled) {
  if (ticket.size() != kTicketBytes) {
    return Fail(ErrorCode::kInvalidArgument, "a ticket for a tcp connection is malformed");
  }
  WelcomedChannel welcomed;
  ASSIGN_OR_RETURN(ConnectedSocket connected,
                   ConnectTcp(offer.host, offer.port, deadline, cancelled));
  welcomed.address = std::move(connected.address);
  if (offer.tls) {
    ASSIGN_OR_RETURN(welcomed.channel,
                     security->Connect(std::move(connected.socket), offer.certificate_sha256));
  } else {
    welcomed.channel = MakePlainChannel(std::move(connected.socket));
  }
  if (Status greeted = Greet(ticket, deadline, &welcomed); !greeted) {
    return Fail(std::move(greeted).error().WithContext(welcomed.address));
  }
  return welcomed;
}

}  // namespace gantry::transport
