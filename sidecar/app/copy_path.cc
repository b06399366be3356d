#include "sidecar/app/copy_path.h"

#include <utility>

#include "sidecar/app/app_options.h"

namespace gantry {
namespace {

transport::CopySchedulerOptions SchedulerOptionsOf(const SidecarConfig& config) {
  transport::CopySchedulerOptions options;
  options.gpu_copies = config.gpu_copies == "engines"  ? transport::GpuCopyPolicy::kEngines
                       : config.gpu_copies == "kernel" ? transport::GpuCopyPolicy::kKernel
                                                       : transport::GpuCopyPolicy::kAuto;
  return options;
}

}  // namespace

Result<std::unique_ptr<CopyPath>> CopyPath::Create(const SidecarConfig& config) {
  ASSIGN_OR_RETURN(auto pool, worker::WorkerPool::Create(WorkerOptionsOf(config)));
  return std::unique_ptr<CopyPath>(new CopyPath(config, std::move(pool)));
}

CopyPath::CopyPath(const SidecarConfig& config, std::unique_ptr<worker::WorkerPool> pool)
    : pool_(std::move(pool)), scheduler_(SchedulerOptionsOf(config), *pool_, *pool_) {}

}  // namespace gantry
