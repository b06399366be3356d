// The objects behind the rdma transport, built from the configuration: devices, registrar, target
// and threads. Outlives the registry, the engine and the peers. Used by the main thread, except
// where noted.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lib/base/result.h"
#include "sidecar/api/api_dependencies.h"
#include "sidecar/app/sidecar_config.h"
#include "sidecar/transport/helper_threads.h"
#include "sidecar/transport/rdma/rdma_sample.h"
#include "sidecar/transport/rdma/rdma_target.h"
#include "sidecar/transport/rdma/rdma_transport.h"
#include "sidecar/transport/rdma/verbs/nic_assignment.h"
#include "sidecar/transport/rdma/verbs/rdma_devices.h"
#include "sidecar/transport/rdma/verbs/rdma_events.h"
#include "sidecar/transport/rdma/verbs/rdma_registrar.h"
#include "sidecar/worker/pool/worker_pool.h"

namespace gantry {

class RdmaPath {
 public:
  // The error says why RDMA is unavailable. That is fatal only if --rdma-devices names devices or
  // the options conflict (kInvalidArgument). `offered` are the slot's devices, used when
  // --rdma-devices is empty. `pool` knows the GPUs and outlives this.
  static Result<std::unique_ptr<RdmaPath>> Create(const SidecarConfig& config,
                                                  const std::vector<std::string>& offered,
                                                  const worker::WorkerPool& pool);

  // Call once. `wake` and `count_error`: see RdmaTransport.
  std::unique_ptr<transport::RdmaTransport> MakeTransport(
      std::function<void()> wake, std::function<void(const Error& why)> count_error);
  const transport::RdmaDevices& devices() const { return *devices_; }
  transport::RdmaRegistrar& registrar() { return registrar_; }
  transport::RdmaTarget& target() { return target_; }
  std::vector<wire::RdmaDeviceAddress> addresses() const { return devices_->Addresses(); }
  // `transport` is the one that was made. Any thread.
  metrics::RdmaSample Sample(const transport::RdmaTransport& transport) const {
    return transport::SampleOf(*devices_, registrar_, transport, target_);
  }
  std::vector<api::RdmaDeviceView> Views() const;  // any thread

 private:
  RdmaPath(std::unique_ptr<transport::Verbs> verbs, std::unique_ptr<transport::RdmaDevices> devices,
           std::unique_ptr<const transport::NicAssignment> nics,
           std::unique_ptr<transport::RdmaEvents> events);

  const std::unique_ptr<transport::Verbs> verbs_;
  const std::unique_ptr<transport::RdmaDevices> devices_;
  // Null: every device registers every buffer.
  const std::unique_ptr<const transport::NicAssignment> nics_;
  transport::RdmaRegistrar registrar_;
  transport::RdmaTarget target_;
  const std::unique_ptr<transport::RdmaEvents> events_;
  transport::HelperThreads helpers_;
};

}  // namespace gantry
