#include "sidecar/app/worker_views.h"

#include <algorithm>
#include <string>

namespace gantry {
namespace {

const char* StateOf(const worker::WorkerStatus& worker) {
  if (worker.state == worker::WorkerState::kUsable) return "ready";
  return worker.state == worker::WorkerState::kStarting ? "starting" : "lost";
}

std::vector<api::GpuView::Cost> CostsOf(const worker::GpuCosts& costs) {
  std::vector<api::GpuView::Cost> views;
  for (size_t i = 0; i < worker::kCostFields.size(); ++i) {
    const worker::CostField& field = worker::kCostFields[i];
    views.push_back({field.name, costs.values.*field.value, NameOf(costs.origins[i])});
  }
  return views;
}

}  // namespace

std::vector<api::WorkerView> WorkerViews(const worker::WorkerPool& pool) {
  std::vector<api::WorkerView> views;
  for (const worker::WorkerStatus& worker : pool.workers()) {
    views.push_back({worker.index, worker.pid, StateOf(worker), worker.gpu, worker.no_gpu_because,
                     worker.asks_for_gpu, worker.restarts, worker.mappings});
  }
  return views;
}

std::vector<api::GpuView> GpuViews(const worker::WorkerPool& pool) {
  std::vector<api::GpuView> views;
  const auto gpus = pool.gpus();
  if (!gpus) return views;
  for (const std::string& uuid : *gpus) {
    const auto place = static_cast<int>(views.size());
    views.push_back({uuid, 0, 0, 0, {}, CostsOf(pool.costs_of(place))});
  }
  for (const worker::WorkerStatus& worker : pool.workers()) {
    const auto home = std::find_if(views.begin(), views.end(), [&](const api::GpuView& view) {
      return view.uuid == worker.gpu;
    });
    if (home == views.end()) continue;
    const uint64_t free = worker.gpu_free_bytes;
    home->free_bytes = home->workers++ == 0 ? free : std::min(home->free_bytes, free);
    home->bytes = worker.gpu_bytes;
    home->reaches = worker.gpus_reached;
  }
  return views;
}

void SampleWorkers(const worker::WorkerPool& pool, metrics::GaugeSample* sample) {
  sample->ipc_mapped_bytes = pool.ipc_mapped_bytes();
  sample->worker_pid_conflicts = pool.pid_conflicts();
  for (const worker::WorkerStatus& worker : pool.workers()) {
    ++sample->workers;
    if (worker.state == worker::WorkerState::kUsable) ++sample->workers_ready;
    if (!worker.gpu.empty()) ++sample->ipc_workers;
    if (worker.asks_for_gpu) ++sample->ipc_workers_refused;
    sample->worker_restarts += worker.restarts;
    sample->worker_maps_succeeded += worker.maps_succeeded;
    sample->worker_maps_failed += worker.maps_failed;
    sample->mappings += worker.mappings;
  }
}

}  // namespace gantry
