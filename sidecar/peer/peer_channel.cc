#include "sidecar/peer/peer_channel.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/create_channel_posix.h>
#include <grpcpp/support/channel_arguments.h>
#include <sys/socket.h>

#include <utility>

#include "lib/base/fd_passing.h"
#include "lib/wire/peer_messages.h"
#include "sidecar/peer/peer_tls.h"
#include "sidecar/peer/socket_admission.h"

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

Result<PeerChannel> OverTcp(const HostPort& address, const PeerChannelOptions& options) {
  PeerChannel made;
  std::shared_ptr<grpc::ChannelCredentials> credentials = grpc::InsecureChannelCredentials();
  if (options.security != nullptr) {
    options.security->Refresh();
    made.authorization = options.security->Authorization();
    if (options.security->has_tls()) credentials = ChannelTls(*options.security, address.host);
  }
  made.channel = grpc::CreateCustomChannel("dns:///" + address.Text(), credentials,
                                           TcpArguments(options.silence_max));
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

Result<PeerChannel> MakePeerChannel(const PeerAddress& address, const PeerChannelOptions& options) {
  RETURN_IF_ERROR(CheckMayReach(address, options.security.get()));
  if (address.over_tcp()) return OverTcp(address.tcp, options);
  ASSIGN_OR_RETURN(UniqueFd fd,
                   ConnectChecked(address.socket_path, SOCK_STREAM, options.uids_allowed));
  // A channel over a connected socket never connects again: it is one session.
  return PeerChannel{
      grpc::CreateCustomInsecureChannelFromFd("gantry-peer", fd.release(), LimitedArguments()), {}};
}

}  // namespace gantry::peer
