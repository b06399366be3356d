// The objects behind the tcp transport, built from the configuration: I/O threads, and helpers of
// both sides. Outlives the engine and the peers. Used by the main thread.
#pragma once

#include <functional>
#include <memory>

#include "lib/base/result.h"
#include "sidecar/app/copy_path.h"
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
                                                 CopyPath& copies);

  // Call once. `wake`: see TcpTransport.
  std::unique_ptr<transport::TcpTransport> MakeTransport(std::function<void()> wake);
  // For the peer server: the settings of data connections, which listen beside the peer API.
  peer::StreamSettings Offers();
  // For other paths that stage; the error says why staging is unavailable.
  Result<StagingArea*> staging() const {
    if (!staging_) return Fail(staging_.error());
    return staging_->get();
  }
  // Stops staged copies; nothing of them moves after the return. The engine must still drive them.
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
  // Declared before the loops, since their last tasks return slices to it.
  const Result<std::unique_ptr<StagingArea>> staging_;
  const std::unique_ptr<transport::IoLoops> loops_;
  const std::unique_ptr<peer::DataTls> tls_;  // null: no certificates
  transport::HelperThreads helpers_;
};

}  // namespace gantry
