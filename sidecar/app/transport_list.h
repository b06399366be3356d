// Builds the transports of a sidecar, and reports which paths work.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "sidecar/app/bounce_path.h"
#include "sidecar/app/copy_path.h"
#include "sidecar/app/rdma_path.h"
#include "sidecar/app/sidecar_config.h"
#include "sidecar/app/tcp_path.h"
#include "sidecar/transport/bounce/bounce_transport.h"
#include "sidecar/transport/rdma/rdma_transport.h"
#include "sidecar/transport/tcp/tcp_transport.h"
#include "sidecar/transport/transport.h"
#include "sidecar/worker/pool/worker_pool.h"

namespace gantry {

// The transports between sidecars, owned by the engine; null: not available.
struct PeerTransports {
  transport::TcpTransport* tcp = nullptr;
  transport::RdmaTransport* rdma = nullptr;
  transport::BounceTransport* bounce = nullptr;
};

struct TransportSources {
  const SidecarConfig& config;
  CopyPath& copies;
  TcpPath& tcp;
  const Result<std::unique_ptr<RdmaPath>>& rdma;  // the error says why RDMA is unavailable
  BouncePath* bounce = nullptr;                   // null: not available
  std::function<void(const Error& why)> count_rdma_error;
};

// Call once, at the start. The sources outlive the transports.
std::vector<std::unique_ptr<transport::Transport>> MakeTransports(const TransportSources& from,
                                                                  PeerTransports* made);

// Updates the reports made at the start: a GPU may have become available. Any thread.
std::vector<wire::PathReport> PathsNow(std::vector<wire::PathReport> at_start,
                                       const worker::WorkerPool& pool);

}  // namespace gantry
