// Converts the configuration to the options of each part. Stateless; thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "lib/http/http_server.h"
#include "sidecar/app/fd_budgets.h"
#include "sidecar/app/run_directory.h"
#include "sidecar/app/sidecar_config.h"
#include "sidecar/transfer/engine_options.h"
#include "sidecar/worker/pool/worker_pool.h"

namespace gantry {

milliseconds Millis(uint64_t value);

worker::WorkerPoolOptions WorkerOptionsOf(const SidecarConfig& config);
engine::EngineOptions EngineOptionsOf(const SidecarConfig& config);
http::HttpServerOptions HttpOptionsOf(const SidecarConfig& config, const FdBudgets& fds_max,
                                      const RunDirectory& directory);
// Returns how many requests may wait at their clients' wish. The other threads serve removals,
// cancellations and suspensions, which wait, too.
size_t AskedWaitsMax(const http::HttpServerOptions& options);
size_t WorkloadsMax(const SidecarConfig& config, const FdBudgets& fds_max);
// Returns the limits that callers may see: names with units, and values.
std::vector<std::pair<std::string, uint64_t>> LimitsOf(const SidecarConfig& config,
                                                       const FdBudgets& fds_max);

}  // namespace gantry
