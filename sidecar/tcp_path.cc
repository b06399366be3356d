#include "sidecar/tcp_path.h"

#include <string>
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

Result<std::unique_ptr<TcpPath>> TcpPath::Create(const SidecarConfig& config) {
  ASSIGN_OR_RETURN(auto loops, transport::IoLoops::Create(config.data_threads));
  return std::unique_ptr<TcpPath>(new TcpPath(config, std::move(loops)));
}

TcpPath::TcpPath(const SidecarConfig& config, std::unique_ptr<transport::IoLoops> loops)
    : config_(config), loops_(std::move(loops)), helpers_(kHelpers) {}

std::unique_ptr<transport::TcpTransport> TcpPath::MakeTransport(std::function<void()> wake) {
  transport::TcpOptions options;
  options.streams_per_peer = config_.data_streams;
  options.checksum = !config_.data_no_checksum;
  return std::make_unique<transport::TcpTransport>(options, *loops_, helpers_, nullptr,
                                                   std::move(wake));
}

peer::StreamSettings TcpPath::Offers() {
  peer::StreamSettings options;
  options.listen = DataAddress(config_);
  options.told = config_.data_host;
  options.loops = loops_.get();
  options.helpers = &helpers_;
  return options;
}

}  // namespace gantry
