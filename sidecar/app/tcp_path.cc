#include "sidecar/app/tcp_path.h"

#include <string>
#include <thread>
#include <utility>

#include "lib/base/log.h"

namespace gantry {
namespace {

constexpr int kTcpHelpers = 4;

// Without an address of their own data connections are taken at the peer API's, at a free port.
std::string DataAddress(const SidecarConfig& config) {
  if (!config.data_listen.empty() || config.peer_listen.empty()) return config.data_listen;
  return config.peer_listen.substr(0, config.peer_listen.rfind(':')) + ":0";
}

// Whoever is put as a peer later may be reached over TCP alone: it is made where there are GPUs.
Result<std::unique_ptr<StagingArea>> MakeStaging(const SidecarConfig& config, CopyPath& copies,
                                                 transport::IoLoops& loops) {
  auto staging = StagingArea::Create(config, copies, loops);
  if (!staging) {
    log::Info("memory of GPUs has no way over tcp", {{"why", staging.error()}});
    staging.error() = Error(staging.error()).WithContext("memory of GPUs is not staged");
  }
  return staging;
}

}  // namespace

Result<std::unique_ptr<TcpPath>> TcpPath::Create(const SidecarConfig& config,
                                                 std::shared_ptr<const peer::PeerSecurity> security,
                                                 CopyPath& copies) {
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
  auto staging = MakeStaging(config, copies, *loops);
  return std::unique_ptr<TcpPath>(
      new TcpPath(config, std::move(loops), std::move(tls), std::move(staging)));
}

TcpPath::TcpPath(const SidecarConfig& config, std::unique_ptr<transport::IoLoops> loops,
                 std::unique_ptr<peer::DataTls> tls, Result<std::unique_ptr<StagingArea>> staging)
    : config_(config),
      staging_(std::move(staging)),
      loops_(std::move(loops)),
      tls_(std::move(tls)),
      helpers_(kTcpHelpers) {}

std::unique_ptr<transport::TcpTransport> TcpPath::MakeTransport(std::function<void()> wake) {
  transport::TcpOptions options;
  options.streams_per_peer = config_.data_streams;
  options.checksum = !config_.data_no_checksum;
  options.tls_required = config_.data_tls;
  Result<transport::StagingHalf*> staging =
      staging_ ? Result<transport::StagingHalf*>((*staging_)->initiator()) : Fail(staging_.error());
  return std::make_unique<transport::TcpTransport>(options, *loops_, helpers_, tls_.get(),
                                                   std::move(wake), std::move(staging));
}

peer::StreamSettings TcpPath::Offers() {
  peer::StreamSettings options;
  options.listen = DataAddress(config_);
  options.advertised = config_.data_host;
  options.loops = loops_.get();
  options.helpers = &helpers_;
  if (config_.data_tls) options.security = tls_.get();
  if (staging_) {
    options.staging = (*staging_)->target();
  } else {
    options.why_not_staged = staging_.error().message;
  }
  return options;
}

}  // namespace gantry
