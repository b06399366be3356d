// The copy workers for the status page and the metrics. Stateless; thread-safe.
#pragma once

#include <vector>

#include "sidecar/api/api_dependencies.h"
#include "sidecar/metrics/metrics.h"
#include "sidecar/worker/pool/worker_pool.h"

namespace gantry {

std::vector<api::WorkerView> WorkerViews(const worker::WorkerPool& pool);
std::vector<api::GpuView> GpuViews(const worker::WorkerPool& pool);
void SampleWorkers(const worker::WorkerPool& pool, metrics::GaugeSample* sample);

}  // namespace gantry
