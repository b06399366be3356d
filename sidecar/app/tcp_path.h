// What the tcp transport of a sidecar runs on, made from the configuration: its io threads and the
// helpers of both sides. Outlives the engine and the peers. Used by the main thread.
#pragma once

#include <functional>
#include <memory>

#include "lib/base/result.h"
#include "sidecar/app/sidecar_config.h"
#include "sidecar/app/staging_area.h"
#include "sidecar/peer/identity/data_tls.h"
#include "sidecar/peer/server/stream_settings.h"
#include "sidecar/transport/helper_threads.h"
#include "sidecar/transport/tcp/channel/io_loop.h"
#include "sidecar/transport/tcp/tcp_transport.h"

namespace gantry {

class TcpPath {
 public:
  static Result<std::unique_ptr<TcpPath>> Create(const SidecarConfig& config,
                                                 std::shared_ptr<const peer::PeerSecurity> security,
                                                 worker::WorkerPool& pool);

  // Once. `wake`: see TcpTransport.
  std::unique_ptr<transport::TcpTransport> MakeTransport(std::function<void()> wake);
  // For the peer server: where data connections are taken, which is beside the peer API.
  peer::StreamSettings Offers();
  // Between memory of GPUs and the network; null: such memory has no way over tcp.
  transport::StagedCopies* copies() { return staging_ ? &(*staging_)->copies() : nullptr; }
  // For other paths that stage; the error says why there is none.
  Result<StagingArea*> staging() const {
    if (!staging_) return Fail(staging_.error());
    return staging_->get();
  }
  // Nothing of them moves any more. While the engine still drives them.
  void EndCopies() {
    if (staging_) (*staging_)->copies().Close();
  }
  metrics::StagingSample Staging() const {
    return staging_ ? (*staging_)->Sample() : metrics::StagingSample{};
  }

 private:
  TcpPath(const SidecarConfig& config, std::unique_ptr<transport::IoLoops> loops,
          std::unique_ptr<peer::DataTls> tls, Result<std::unique_ptr<StagingArea>> staging);

  const SidecarConfig& config_;
  // Before the loops, whose last tasks give its slices back.
  const Result<std::unique_ptr<StagingArea>> staging_;
  const std::unique_ptr<transport::IoLoops> loops_;
  const std::unique_ptr<peer::DataTls> tls_;  // null: there are no certificates
  transport::HelperThreads helpers_;
};

}  // namespace gantry
