// What the configuration means to each part of the sidecar. Stateless; thread-safe.
#pragma once

#include "sidecar/api/http_server.h"
#include "sidecar/engine/engine_options.h"
#include "sidecar/run_directory.h"
#include "sidecar/sidecar_config.h"
#include "sidecar/worker/worker_pool.h"

namespace gantry {

milliseconds Millis(uint64_t value);

worker::WorkerPoolOptions WorkerOptionsOf(const SidecarConfig& config);
engine::EngineOptions EngineOptionsOf(const SidecarConfig& config);
api::HttpServerOptions HttpOptionsOf(const SidecarConfig& config, const RunDirectory& directory);

}  // namespace gantry
