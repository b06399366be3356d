// The transports of a sidecar, in the order in which they are asked, and what they are good for.
#pragma once

#include <memory>
#include <vector>

#include "sidecar/sidecar_config.h"
#include "sidecar/transport/staged_copies.h"
#include "sidecar/transport/transport.h"
#include "sidecar/worker/worker_pool.h"

namespace gantry {

// Called once, by the start. `tcp` is the last resort, `rdma` comes before it. The pool outlives
// them, and so do the staged copies (null: none), which run on one of them.
std::vector<std::unique_ptr<transport::Transport>> MakeTransports(
    const SidecarConfig& config, worker::WorkerPool& pool,
    std::unique_ptr<transport::Transport> rdma, std::unique_ptr<transport::Transport> tcp,
    transport::StagedCopies* staging);

// What holds now of what the paths were good for at the start: a GPU may have come since. By any
// thread.
std::vector<wire::PathReport> PathsNow(std::vector<wire::PathReport> at_start,
                                       const worker::WorkerPool& pool);

}  // namespace gantry
