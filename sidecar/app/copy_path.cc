#include "sidecar/app/copy_path.h"

#include <utility>

#include "sidecar/app/app_options.h"

namespace gantry {
namespace {

transport::CopySchedulerOptions SchedulerOptionsOf(const SidecarConfig& config,
                                                   const worker::WorkerPool& pool) {
  transport::CopySchedulerOptions options;
  options.gpu_copies = config.gpu_copies == "engines"  ? transport::GpuCopyPolicy::kEngines
                       : config.gpu_copies == "kernel" ? transport::GpuCopyPolicy::kKernel
                                                       : transport::GpuCopyPolicy::kAuto;
  options.costs_of = [&pool](int gpu) { return pool.costs_of(gpu).values; };
  return options;
}

}  // namespace

Result<std::unique_ptr<CopyPath>> CopyPath::Create(const SidecarConfig& config) {
  ASSIGN_OR_RETURN(auto pool, worker::WorkerPool::Create(WorkerOptionsOf(config)));
  return std::unique_ptr<CopyPath>(new CopyPath(config, std::move(pool)));
}

CopyPath::CopyPath(const SidecarConfig& config, std::unique_ptr<worker::WorkerPool> pool)
    : pool_(std::move(pool)), scheduler_(SchedulerOptionsOf(config, *pool_), *pool_, *pool_) {}

}  // namespace gantry
