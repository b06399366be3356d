#include "sidecar/app/rdma_path.h"

#include "lib/base/log.h"
#include "sidecar/transport/rdma/verbs/system_verbs.h"

namespace gantry {
namespace {

// Each waits for one peer, or for a device that hangs, at a time; none of that holds other peers
// up.
constexpr int kRdmaHelpers = 8;
constexpr int kHelpersMax = 512;
constexpr std::string_view kNearest = "nearest";  // of --rdma-nics

transport::RdmaOptions RdmaOptionsOf(const SidecarConfig& config) {
  transport::RdmaOptions options;
  options.devices = config.rdma_devices;
  options.port = config.rdma_port;
  options.gid_index = config.rdma_gid_index;
  options.mtu = config.rdma_mtu;
  options.chunk_bytes = config.rdma_chunk_bytes;
  options.queue_pairs = config.rdma_queue_pairs;
  options.work_requests = config.rdma_work_requests;
  options.slice_bytes = config.rdma_slice_bytes;
  options.inline_bytes = config.rdma_inline_bytes;
  options.timeout = config.rdma_timeout;
  options.retries = config.rdma_retries;
  options.traffic_class = config.rdma_traffic_class;
  options.service_level = config.rdma_service_level;
  options.hop_limit = config.rdma_hop_limit;
  options.relaxed_ordering = config.rdma_relaxed_ordering;
  return options;
}

transport::RdmaRegistrar::Choose ChoiceOf(const transport::NicAssignment* nics) {
  if (nics == nullptr) return {};
  return [nics](const std::vector<memory::NicPiece>& pieces) { return nics->For(pieces); };
}

}  // namespace

Result<std::unique_ptr<RdmaPath>> RdmaPath::Create(const SidecarConfig& config,
                                                   const std::vector<std::string>& offered,
                                                   const worker::WorkerPool& pool) {
  if (config.no_rdma) {
    return Fail(ErrorCode::kPathUnavailable, "--no-rdma turns it off");
  }
  auto verbs = transport::MakeSystemVerbs();
  transport::RdmaOptions options = RdmaOptionsOf(config);
  options.offered = offered;
  auto devices = transport::RdmaDevices::Open(options, *verbs);
  if (!devices) {
    if (!config.rdma_devices.empty()) {
      Error why = std::move(devices).error().WithContext("--rdma-devices");
      why.code = ErrorCode::kInvalidArgument;
      return Fail(std::move(why));
    }
    if (devices.error().code == ErrorCode::kInvalidArgument) {
      return Fail(std::move(devices).error());
    }
    log::Info("no RDMA device is used", {{"why", devices.error()}});
    return Fail(std::move(devices).error());
  }
  ASSIGN_OR_RETURN(auto events, transport::RdmaEvents::Create());
  std::unique_ptr<const transport::NicAssignment> nics;
  if (config.rdma_nics == kNearest) {
    transport::NicAssignment::Machine machine;
    machine.address_of_gpu = [&pool](const std::string& uuid) { return pool.PciAddressOf(uuid); };
    nics = std::make_unique<const transport::NicAssignment>(**devices, std::move(machine));
    nics->LogChoices(pool.gpus().value_or(std::vector<std::string>()));
  }
  return std::unique_ptr<RdmaPath>(
      new RdmaPath(std::move(verbs), *std::move(devices), std::move(nics), std::move(events)));
}

RdmaPath::RdmaPath(std::unique_ptr<transport::Verbs> verbs,
                   std::unique_ptr<transport::RdmaDevices> devices,
                   std::unique_ptr<const transport::NicAssignment> nics,
                   std::unique_ptr<transport::RdmaEvents> events)
    : verbs_(std::move(verbs)),
      devices_(std::move(devices)),
      nics_(std::move(nics)),
      registrar_(*devices_, ChoiceOf(nics_.get())),
      target_(*devices_, {}),
      events_(std::move(events)),
      helpers_(kRdmaHelpers, kHelpersMax) {}

std::unique_ptr<transport::RdmaTransport> RdmaPath::MakeTransport(
    std::function<void()> wake, std::function<void(const Error& why)> count_error) {
  return std::make_unique<transport::RdmaTransport>(*devices_, *events_, helpers_, std::move(wake),
                                                    std::move(count_error));
}

std::vector<api::RdmaDeviceView> RdmaPath::Views() const {
  std::vector<api::RdmaDeviceView> views;
  for (size_t i = 0; i < devices_->size(); ++i) {
    const Status takes = devices_->at(i).dma_bufs->Check();
    views.push_back({devices_->at(i).device->name(), takes ? "" : takes.error().message});
  }
  return views;
}

}  // namespace gantry
