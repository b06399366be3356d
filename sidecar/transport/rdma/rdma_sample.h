// Collects the metrics of rdma, per device and for connections. Stateless; thread-safe.
#pragma once

#include "sidecar/metrics/metrics.h"
#include "sidecar/transport/rdma/rdma_target.h"
#include "sidecar/transport/rdma/rdma_transport.h"
#include "sidecar/transport/rdma/verbs/rdma_devices.h"
#include "sidecar/transport/rdma/verbs/rdma_registrar.h"

namespace gantry::transport {

metrics::RdmaSample SampleOf(const RdmaDevices& devices, const RdmaRegistrar& registrar,
                             const RdmaTransport& transport, const RdmaTarget& target);

}  // namespace gantry::transport
