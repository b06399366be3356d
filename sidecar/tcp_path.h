// What the tcp transport of a sidecar runs on, made from the configuration: its io threads and the
// helpers of both sides. Outlives the engine and the peers. Used by the main thread.
#pragma once

#include <functional>
#include <memory>

#include "lib/base/result.h"
#include "sidecar/peer/data_tls.h"
#include "sidecar/peer/stream_settings.h"
#include "sidecar/sidecar_config.h"
#include "sidecar/transport/tcp/helper_threads.h"
#include "sidecar/transport/tcp/io_loop.h"
#include "sidecar/transport/tcp/tcp_transport.h"

namespace gantry {

class TcpPath {
 public:
  static Result<std::unique_ptr<TcpPath>> Create(
      const SidecarConfig& config, std::shared_ptr<const peer::PeerSecurity> security);

  // Once. `wake`: see TcpTransport.
  std::unique_ptr<transport::TcpTransport> MakeTransport(std::function<void()> wake);
  // For the peer server: where data connections are taken, which is beside the peer API.
  peer::StreamSettings Offers();

 private:
  TcpPath(const SidecarConfig& config, std::unique_ptr<transport::IoLoops> loops,
          std::unique_ptr<peer::DataTls> tls);

  const SidecarConfig& config_;
  const std::unique_ptr<transport::IoLoops> loops_;
  const std::unique_ptr<peer::DataTls> tls_;  // null: there are no certificates
  transport::HelperThreads helpers_;
};

}  // namespace gantry
