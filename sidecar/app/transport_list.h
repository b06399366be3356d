// The transports of a sidecar, in the order in which they are asked, and what they are good for.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "sidecar/app/bounce_path.h"
#include "sidecar/app/rdma_path.h"
#include "sidecar/app/sidecar_config.h"
#include "sidecar/app/tcp_path.h"
#include "sidecar/transport/bounce/bounce_transport.h"
#include "sidecar/transport/rdma/rdma_transport.h"
#include "sidecar/transport/tcp/tcp_transport.h"
#include "sidecar/transport/transport.h"
#include "sidecar/worker/pool/worker_pool.h"

namespace gantry {

// Those between sidecars, which the engine owns; null: there is none of that kind.
struct PeerTransports {
  transport::TcpTransport* tcp = nullptr;
  transport::RdmaTransport* rdma = nullptr;
  transport::BounceTransport* bounce = nullptr;
};

struct TransportSources {
  const SidecarConfig& config;
  worker::WorkerPool& pool;
  TcpPath& tcp;
  const Result<std::unique_ptr<RdmaPath>>& rdma;  // the error: why no device is used
  BouncePath* bounce = nullptr;                   // null: likewise
  std::function<void(const Error& why)> count_rdma_error;
};

// Called once, by the start. What they are made from outlives them.
std::vector<std::unique_ptr<transport::Transport>> MakeTransports(const TransportSources& from,
                                                                  PeerTransports* made);

// What holds now of what the paths were good for at the start: a GPU may have come since. By any
// thread.
std::vector<wire::PathReport> PathsNow(std::vector<wire::PathReport> at_start,
                                       const worker::WorkerPool& pool);

}  // namespace gantry
