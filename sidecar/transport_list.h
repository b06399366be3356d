// The transports of a sidecar, in the order in which they are asked. Called once, by the start.
#pragma once

#include <memory>
#include <vector>

#include "sidecar/sidecar_config.h"
#include "sidecar/transport/staged_copies.h"
#include "sidecar/transport/transport.h"
#include "sidecar/worker/worker_pool.h"

namespace gantry {

// `tcp` is the last resort, `rdma` comes before it. The pool outlives them, and so do the staged
// copies (null: none), which run on one of them.
std::vector<std::unique_ptr<transport::Transport>> MakeTransports(
    const SidecarConfig& config, worker::WorkerPool& pool,
    std::unique_ptr<transport::Transport> rdma, std::unique_ptr<transport::Transport> tcp,
    transport::StagedCopies* staging);

}  // namespace gantry
