#include "sidecar/app/transport_list.h"

#include <utility>

#include "lib/base/log.h"
#include "sidecar/copy/ipc_transport.h"
#include "sidecar/copy/shm_transport.h"
#include "sidecar/transport/unavailable_transport.h"

namespace gantry {

namespace {

using Transports = std::vector<std::unique_ptr<transport::Transport>>;

// Rdma, and what goes over it.
void AddRdma(const TransportSources& from, PeerTransports* made, Transports* transports) {
  if (!from.rdma) {
    for (const wire::Path path : {wire::Path::kRdma, wire::Path::kBounce}) {
      transports->push_back(
          std::make_unique<transport::UnavailableTransport>(path, from.rdma.error()));
    }
    return;
  }
  auto rdma = (*from.rdma)
                  ->MakeTransport([&pool = from.copies.pool()] { pool.WakeWaiter(); },
                                  from.count_rdma_error);
  auto bounce = from.bounce->MakeTransport(*rdma);
  made->rdma = rdma.get();
  made->bounce = bounce.get();
  transports->push_back(std::move(rdma));
  transports->push_back(std::move(bounce));
}

}  // namespace

Transports MakeTransports(const TransportSources& from, PeerTransports* made) {
  worker::WorkerPool& pool = from.copies.pool();
  const auto gpus = pool.gpus();
  if (gpus) {
    log::Info("GPUs are within reach", {{"count", gpus->size()}});
  } else {
    log::Info("no GPU is within reach", {{"why", gpus.error()}});
  }
  transport::CopyScheduler& copies = from.copies.scheduler();
  Transports transports;
  transports.push_back(
      std::make_unique<transport::IpcTransport>([&pool] { return pool.HasGpus(); }, copies));
  transports.push_back(std::make_unique<transport::ShmTransport>(copies));
  AddRdma(from, made, &transports);
  auto tcp = from.tcp.MakeTransport([&pool] { pool.WakeWaiter(); });
  made->tcp = tcp.get();
  transports.push_back(std::move(tcp));
  return transports;
}

std::vector<wire::PathReport> PathsNow(std::vector<wire::PathReport> at_start,
                                       const worker::WorkerPool& pool) {
  for (wire::PathReport& report : at_start) {
    if (report.path != wire::Path::kIpc) continue;
    const Status gpus = pool.HasGpus();
    report.available = gpus.has_value();
    report.reason = gpus ? "" : gpus.error().message;
  }
  return at_start;
}

}  // namespace gantry
