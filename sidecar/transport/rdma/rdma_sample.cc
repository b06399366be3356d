#include "sidecar/transport/rdma/rdma_sample.h"

#include <utility>

namespace gantry::transport {

metrics::RdmaSample SampleOf(const RdmaDevices& devices, const RdmaRegistrar& registrar,
                             const RdmaTransport& transport, const RdmaTarget& target) {
  constexpr auto kRead = static_cast<size_t>(WorkOperation::kRead);
  constexpr auto kWrite = static_cast<size_t>(WorkOperation::kWrite);
  metrics::RdmaSample sample;
  sample.initiator_connections = transport.connections();
  sample.target_connections = target.connections();
  for (size_t i = 0; i < devices.size(); ++i) {
    const NicCounters& counted = *devices.at(i).counters;
    metrics::RdmaDeviceSample of;
    of.device = devices.at(i).device->name();
    of.port_active = devices.IsUp(i);
    of.chunks = registrar.chunks(i);
    of.queue_pairs = counted.queue_pairs;
    of.inflight = counted.in_flight;
    of.inflight_max =
        of.queue_pairs * devices.QueuePairOptionsOf(i, devices.at(i).gid).work_requests;
    of.retried = counted.lost;
    of.reads = counted.moved[kRead];
    of.writes = counted.moved[kWrite];
    of.bytes_read = counted.bytes[kRead];
    of.bytes_written = counted.bytes[kWrite];
    sample.devices.push_back(std::move(of));
  }
  return sample;
}

}  // namespace gantry::transport
