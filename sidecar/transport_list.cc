#include "sidecar/transport_list.h"

#include <utility>

#include "lib/base/log.h"
#include "sidecar/transport/ipc_transport.h"
#include "sidecar/transport/shm_transport.h"

namespace gantry {

std::vector<std::unique_ptr<transport::Transport>> MakeTransports(
    const SidecarConfig& config, worker::WorkerPool& pool,
    std::unique_ptr<transport::Transport> rdma, std::unique_ptr<transport::Transport> tcp,
    transport::StagedCopies* staging) {
  const auto gpus = pool.gpus();
  if (gpus) {
    log::Info("GPUs are within reach", {{"count", gpus->size()}});
  } else {
    log::Info("no GPU is within reach", {{"why", gpus.error()}});
  }
  transport::ShmOptions options;
  options.gpu_copies = config.gpu_copies == "engines"  ? transport::GpuCopyPolicy::kEngines
                       : config.gpu_copies == "kernel" ? transport::GpuCopyPolicy::kKernel
                                                       : transport::GpuCopyPolicy::kAuto;
  auto shm = std::make_unique<transport::ShmTransport>(options, pool);
  if (staging != nullptr) staging->RunOn(shm.get());
  std::vector<std::unique_ptr<transport::Transport>> transports;
  transports.push_back(std::make_unique<transport::IpcTransport>(
      [&pool]() -> Status {
        RETURN_IF_ERROR(pool.gpus());
        return {};
      },
      *shm));
  transports.push_back(std::move(shm));
  transports.push_back(std::move(rdma));
  transports.push_back(std::move(tcp));
  return transports;
}

std::vector<wire::PathReport> PathsNow(std::vector<wire::PathReport> at_start,
                                       const worker::WorkerPool& pool) {
  for (wire::PathReport& report : at_start) {
    if (report.path != wire::Path::kIpc) continue;
    const auto gpus = pool.gpus();
    report.available = gpus.has_value();
    report.reason = gpus ? "" : gpus.error().message;
  }
  return at_start;
}

}  // namespace gantry
