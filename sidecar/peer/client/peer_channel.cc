#include "sidecar/peer/client/peer_channel.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/create_channel_posix.h>
#include <grpcpp/support/channel_arguments.h>
#include <sys/socket.h>

#include <utility>

#include "lib/base/fd_passing.h"
#include "lib/net/tcp_connect.h"
#include "lib/wire/peer_messages.h"
#include "sidecar/peer/identity/peer_tls.h"
#include "sidecar/peer/identity/socket_admission.h"

namespace gantry::peer {
namespace {

grpc::ChannelArguments LimitedArguments() {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(wire::kPeerMessageBytesMax);
  arguments.SetMaxSendMessageSize(wire::kPeerMessageBytesMax);
  return arguments;
}

grpc::ChannelArguments TcpArguments(milliseconds silence_max) {
  grpc::ChannelArguments arguments = LimitedArguments();
  const int half = static_cast<int>(silence_max.count() / 2);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, half);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, half);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // One session, one connection: another one must not find this session's certificate.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  // Neither the environment nor a DNS record decides what is connected to, and how.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
  return arguments;
}

// gRPC would try the addresses of a name one after the other, each for longer than a peer may take;
// and data connections have to know where it went.
Result<std::string> HostThatAnswers(const HostPort& address, TimePoint deadline,
                                    const net::Cancelled& cancelled) {
  ASSIGN_OR_RETURN(const auto addresses, net::LookUp(address, deadline, cancelled));
  if (addresses.size() == 1) return addresses.front().Host();
  ASSIGN_OR_RETURN(const net::Connected connected, net::ConnectAny(addresses, deadline, cancelled));
  return connected.address.Host();
}

Result<PeerChannel> OverTcp(const HostPort& address, const PeerChannelOptions& options,
                            TimePoint deadline, const net::Cancelled& cancelled) {
  PeerChannel made;
  auto host = HostThatAnswers(address, deadline, cancelled);
  if (!host) return Fail(std::move(host).error().WithContext(address.Text()));
  made.host = *std::move(host);
  std::shared_ptr<grpc::ChannelCredentials> credentials = grpc::InsecureChannelCredentials();
  if (options.security != nullptr) {
    options.security->Refresh();
    made.authorization = options.security->Authorization();
    if (options.security->has_tls()) credentials = ChannelTls(*options.security, address.host);
  }
  grpc::ChannelArguments arguments = TcpArguments(options.silence_max);
  arguments.SetString(GRPC_ARG_DEFAULT_AUTHORITY, address.Text());
  made.channel = grpc::CreateCustomChannel("dns:///" + HostPort{made.host, address.port}.Text(),
                                           credentials, arguments);
  return made;
}

}  // namespace

Result<UniqueFd> ConnectChecked(const std::string& path, int type, const UidSet& uids_allowed) {
  ASSIGN_OR_RETURN(UniqueFd fd, ConnectUnix(path, type | SOCK_NONBLOCK));
  RETURN_IF_ERROR(CheckPeerUid(fd.get(), uids_allowed));
  return fd;
}

Status CheckMayReach(const PeerAddress& address, const PeerSecurity* security) {
  if (!address.over_tcp()) return {};
  if (security != nullptr) return security->CheckConnect(address.tcp.host);
  if (IsLoopback(address.tcp.host)) return {};
  return Fail(ErrorCode::kPermissionDenied,
              "this sidecar has nothing that it could show a peer at " + address.tcp.host,
              "give it --peer-tls-cert, --peer-tls-key and --peer-tls-ca", "/address");
}

Result<PeerChannel> MakePeerChannel(const PeerAddress& address, const PeerChannelOptions& options,
                                    TimePoint deadline, const net::Cancelled& cancelled) {
  RETURN_IF_ERROR(CheckMayReach(address, options.security.get()));
  if (address.over_tcp()) return OverTcp(address.tcp, options, deadline, cancelled);
  ASSIGN_OR_RETURN(UniqueFd fd,
                   ConnectChecked(address.socket_path, SOCK_STREAM, options.uids_allowed));
  // A channel over a connected socket never connects again: it is one session.
  PeerChannel made;
  made.channel =
      grpc::CreateCustomInsecureChannelFromFd("gantry-peer", fd.release(), LimitedArguments());
  return made;
}

}  // namespace gantry::peer
