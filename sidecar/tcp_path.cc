#include "sidecar/tcp_path.h"

#include <string>
#include <thread>
#include <utility>

namespace gantry {
namespace {

constexpr int kHelpers = 4;

// Without an address of their own data connections are taken at the peer API's, at a free port.
std::string DataAddress(const SidecarConfig& config) {
  if (!config.data_listen.empty() || config.peer_listen.empty()) return config.data_listen;
  return config.peer_listen.substr(0, config.peer_listen.rfind(':')) + ":0";
}

}  // namespace

Result<std::unique_ptr<TcpPath>> TcpPath::Create(
    const SidecarConfig& config, std::shared_ptr<const peer::PeerSecurity> security) {
  if (config.data_tls && !security->has_tls()) {
    return Fail(ErrorCode::kInvalidArgument, "--data-tls needs certificates, and there are none",
                "give --peer-tls-cert, --peer-tls-key and --peer-tls-ca");
  }
  std::unique_ptr<peer::DataTls> tls;
  if (security->has_tls()) {
    ASSIGN_OR_RETURN(tls, peer::DataTls::Make(std::move(security)));
  }
  const int threads =
      config.data_threads != 0
          ? config.data_threads
          : transport::IoThreadsFor(config.data_streams, std::thread::hardware_concurrency());
  ASSIGN_OR_RETURN(auto loops, transport::IoLoops::Create(threads));
  return std::unique_ptr<TcpPath>(new TcpPath(config, std::move(loops), std::move(tls)));
}

TcpPath::TcpPath(const SidecarConfig& config, std::unique_ptr<transport::IoLoops> loops,
                 std::unique_ptr<peer::DataTls> tls)
    : config_(config), loops_(std::move(loops)), tls_(std::move(tls)), helpers_(kHelpers) {}

std::unique_ptr<transport::TcpTransport> TcpPath::MakeTransport(std::function<void()> wake) {
  transport::TcpOptions options;
  options.streams_per_peer = config_.data_streams;
  options.checksum = !config_.data_no_checksum;
  options.tls_required = config_.data_tls;
  return std::make_unique<transport::TcpTransport>(options, *loops_, helpers_, tls_.get(),
                                                   std::move(wake));
}

peer::StreamSettings TcpPath::Offers() {
  peer::StreamSettings options;
  options.listen = DataAddress(config_);
  options.told = config_.data_host;
  options.loops = loops_.get();
  options.helpers = &helpers_;
  if (config_.data_tls) options.security = tls_.get();
  return options;
}

}  // namespace gantry
