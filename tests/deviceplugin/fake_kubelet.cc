#include "tests/deviceplugin/fake_kubelet.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "deviceplugin/cdi_specs.h"

namespace gantry::deviceplugin {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds kDialMax{10};
constexpr std::chrono::seconds kPreStartMax{30};
constexpr milliseconds kHangMax{20'000};

std::unique_ptr<grpc::Server> Serve(const std::string& socket, grpc::Service* service) {
  grpc::ServerBuilder builder;
  builder.AddListeningPort("unix://" + socket, grpc::InsecureServerCredentials());
  builder.RegisterService(service);
  return builder.BuildAndStart();
}

std::shared_ptr<grpc::Channel> NewChannel(const std::string& socket) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel("unix://" + socket, grpc::InsecureChannelCredentials(),
                                   arguments);
}

void RemoveSockets(const std::string& folder) {
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.is_socket()) fs::remove(entry.path());
  }
}

}  // namespace

class FakeKubelet::Registration final : public v1beta1::Registration::Service {
 public:
  explicit Registration(FakeKubelet& kubelet) : kubelet_(kubelet) {}
  grpc::Status Register(grpc::ServerContext* context, const v1beta1::RegisterRequest* request,
                        v1beta1::Empty*) override {
    if (kubelet_.hang_ && Eventually([&] { return context->IsCancelled(); }, kHangMax)) {
      return grpc::Status::CANCELLED;
    }
    return kubelet_.Register(*request);
  }

 private:
  FakeKubelet& kubelet_;
};

class FakeKubelet::PodResources final : public v1::PodResourcesLister::Service {
 public:
  explicit PodResources(FakeKubelet& kubelet) : kubelet_(kubelet) {}
  grpc::Status List(grpc::ServerContext*, const v1::ListPodResourcesRequest*,
                    v1::ListPodResourcesResponse* response) override {
    std::this_thread::sleep_for(kubelet_.pod_resources_delay_.load());
    if (kubelet_.pod_resources_fail_) return {grpc::StatusCode::INTERNAL, "made to fail"};
    kubelet_.FillPods(response);
    return grpc::Status::OK;
  }

 private:
  FakeKubelet& kubelet_;
};

FakeKubelet::FakeKubelet() {
  for (const auto& folder : {plugin_folder(), pod_resources_folder(), cdi_folder()}) {
    fs::create_directory(folder);
  }
}

FakeKubelet::~FakeKubelet() { Stop(); }

void FakeKubelet::Start() {
  fs::create_directory(plugin_folder());
  RemoveSockets(plugin_folder());
  RemoveSockets(pod_resources_folder());
  registration_ = std::make_unique<Registration>(*this);
  pod_resources_ = std::make_unique<PodResources>(*this);
  pod_resources_server_ = Serve(pod_resources_folder() + "/kubelet.sock", pod_resources_.get());
  registration_server_ = Serve(plugin_folder() + "/kubelet.sock", registration_.get());
}

void FakeKubelet::Stop() {
  const auto now = std::chrono::system_clock::now();
  if (registration_server_ != nullptr) registration_server_->Shutdown(now);
  if (pod_resources_server_ != nullptr) pod_resources_server_->Shutdown(now);
  std::map<std::string, std::shared_ptr<Endpoint>> endpoints;
  {
    const MutexLock lock(mutex_);
    endpoints.swap(endpoints_);
  }
  for (auto& [resource, endpoint] : endpoints) {
    endpoint->stream_context->TryCancel();
    endpoint->reader.join();
  }
  registration_server_.reset();
  pod_resources_server_.reset();
}

grpc::Status FakeKubelet::Register(const v1beta1::RegisterRequest& request) {
  if (refuse_) return {grpc::StatusCode::UNAVAILABLE, "made to refuse"};
  if (request.version() != "v1beta1") return {grpc::StatusCode::INVALID_ARGUMENT, "the version"};
  if (request.endpoint().find('/') != std::string::npos) {
    return {grpc::StatusCode::INVALID_ARGUMENT, "the endpoint is no name of a file"};
  }
  // It calls back before it answers, and gives up after ten seconds.
  const auto channel = NewChannel(plugin_folder() + "/" + request.endpoint());
  if (!channel->WaitForConnected(std::chrono::system_clock::now() + kDialMax)) {
    return {grpc::StatusCode::UNAVAILABLE, "failed to dial device plugin"};
  }
  auto endpoint = std::make_shared<Endpoint>();
  endpoint->resource = request.resource_name();
  endpoint->stub = v1beta1::DevicePlugin::NewStub(channel);
  endpoint->stream_context = std::make_unique<grpc::ClientContext>();
  grpc::ClientContext context;
  const grpc::Status status =
      endpoint->stub->GetDevicePluginOptions(&context, {}, &endpoint->options);
  if (!status.ok()) return status;
  std::shared_ptr<Endpoint> old;
  {
    const MutexLock lock(mutex_);
    old = std::exchange(endpoints_[request.resource_name()], endpoint);
  }
  endpoint->reader = std::thread([this, endpoint] { Read(endpoint.get()); });
  if (old != nullptr) {
    old->stream_context->TryCancel();
    old->reader.join();
  }
  ++registrations_;
  return grpc::Status::OK;
}

void FakeKubelet::Read(Endpoint* endpoint) {
  if (lose_streams_ > 0) {
    --lose_streams_;
    endpoint->stream_context->TryCancel();
  }
  const auto reader = endpoint->stub->ListAndWatch(endpoint->stream_context.get(), {});
  v1beta1::ListAndWatchResponse list;
  while (reader->Read(&list)) {
    const MutexLock lock(mutex_);
    endpoint->healthy.clear();
    for (const auto& device : list.devices()) {
      endpoint->healthy[device.id()] = device.health() == "Healthy";
    }
  }
  const grpc::Status ended = reader->Finish();
  const MutexLock lock(mutex_);
  endpoint->connected = false;
  for (auto& [id, healthy] : endpoint->healthy) healthy = false;
}

std::set<std::string> FakeKubelet::InUse(const std::string& resource) const {
  std::set<std::string> ids;
  for (const auto& [key, by_resource] : allocations_) {
    const auto found = by_resource.find(resource);
    if (found != by_resource.end()) ids.insert(found->second.ids.begin(), found->second.ids.end());
  }
  return ids;
}

Status FakeKubelet::Allocate(const ContainerKey& key, const std::string& resource, int count) {
  std::shared_ptr<Endpoint> endpoint;
  v1beta1::AllocateRequest request;
  auto* const container = request.add_container_requests();
  {
    const MutexLock lock(mutex_);
    const auto found = endpoints_.find(resource);
    if (found == endpoints_.end()) {
      return Fail(ErrorCode::kNotFound, "cannot allocate unregistered device " + resource);
    }
    endpoint = found->second;
    const auto used = InUse(resource);
    for (const auto& [id, healthy] : endpoint->healthy) {
      if (container->devices_ids_size() == count) break;
      if (healthy && !used.contains(id)) container->add_devices_ids(id);
    }
    if (container->devices_ids_size() < count) {
      return Fail(ErrorCode::kResourceExhausted, "requested number of devices unavailable");
    }
  }
  grpc::ClientContext context;  // without a deadline
  v1beta1::AllocateResponse response;
  const grpc::Status status = endpoint->stub->Allocate(&context, request, &response);
  if (!status.ok()) return Fail(ErrorCode::kInternal, status.error_message());
  const MutexLock lock(mutex_);
  allocations_[key][resource] = {{container->devices_ids().begin(), container->devices_ids().end()},
                                 response.container_responses(0)};
  return {};
}

Status FakeKubelet::Admit(const FakePod& pod) {
  for (const FakeContainer& container : pod.containers) {
    for (const auto& [resource, count] : container.of_plugin) {
      RETURN_IF_ERROR(Allocate({pod.pod_namespace, pod.name, container.name}, resource, count));
    }
  }
  const MutexLock lock(mutex_);
  pods_.push_back(pod);
  return {};
}

void FakeKubelet::Remove(const std::string& pod_namespace, const std::string& pod) {
  const MutexLock lock(mutex_);
  std::erase_if(pods_, [&](const FakePod& other) {
    return other.pod_namespace == pod_namespace && other.name == pod;
  });
  std::erase_if(allocations_, [&](const auto& entry) {
    return std::get<0>(entry.first) == pod_namespace && std::get<1>(entry.first) == pod;
  });
}

Result<nlohmann::json> FakeKubelet::StartContainer(const std::string& pod_namespace,
                                                   const std::string& pod,
                                                   const std::string& container) {
  std::map<std::string, Allocation> allocations;
  {
    const MutexLock lock(mutex_);
    allocations = allocations_[{pod_namespace, pod, container}];
  }
  ContainerEdits edits;
  for (const auto& [resource, allocation] : allocations) {
    std::shared_ptr<Endpoint> endpoint;
    {
      const MutexLock lock(mutex_);
      const auto found = endpoints_.find(resource);
      if (found != endpoints_.end()) endpoint = found->second;
    }
    // A kubelet that was restarted has no options of a plugin that has not come back, and skips it.
    if (endpoint != nullptr && endpoint->options.pre_start_required()) {
      grpc::ClientContext context;
      context.set_deadline(std::chrono::system_clock::now() + kPreStartMax);
      v1beta1::PreStartContainerRequest request;
      for (const std::string& id : allocation.ids) request.add_devices_ids(id);
      v1beta1::PreStartContainerResponse response;
      const grpc::Status status = endpoint->stub->PreStartContainer(&context, request, &response);
      if (!status.ok()) {
        return Fail(ErrorCode::kInternal, "device plugin PreStartContainer rpc failed with err: " +
                                              status.error_message());
      }
    }
    const CdiSpecs specs = CdiSpecs::Read({cdi_folder()});  // as the runtime does
    for (const auto& device : allocation.response.cdi_devices()) {
      const CdiDevice* const found = specs.Find(device.name());
      if (found == nullptr) {
        return Fail(ErrorCode::kNotFound, "unresolvable CDI devices " + device.name());
      }
      edits.Merge(found->all);
    }
  }
  return edits.json();
}

int FakeKubelet::Capacity(const std::string& resource) const {
  const MutexLock lock(mutex_);
  const auto endpoint = endpoints_.find(resource);
  return endpoint == endpoints_.end() ? 0 : static_cast<int>(endpoint->second->healthy.size());
}

int FakeKubelet::Allocatable(const std::string& resource) const {
  const MutexLock lock(mutex_);
  const auto endpoint = endpoints_.find(resource);
  if (endpoint == endpoints_.end()) return 0;
  const auto& devices = endpoint->second->healthy;
  return static_cast<int>(std::count_if(devices.begin(), devices.end(),
                                        [](const auto& device) { return device.second; }));
}

std::vector<std::string> FakeKubelet::DevicesOf(const std::string& pod,
                                                const std::string& container,
                                                const std::string& resource) const {
  const MutexLock lock(mutex_);
  for (const auto& [key, by_resource] : allocations_) {
    const auto found = by_resource.find(resource);
    if (std::get<1>(key) == pod && std::get<2>(key) == container && found != by_resource.end()) {
      return found->second.ids;
    }
  }
  return {};
}

v1beta1::ContainerAllocateResponse FakeKubelet::AllocatedFor(const std::string& pod,
                                                             const std::string& container,
                                                             const std::string& resource) const {
  const MutexLock lock(mutex_);
  for (const auto& [key, by_resource] : allocations_) {
    const auto found = by_resource.find(resource);
    if (std::get<1>(key) == pod && std::get<2>(key) == container && found != by_resource.end()) {
      return found->second.response;
    }
  }
  return {};
}

void FakeKubelet::DropStream(const std::string& resource) {
  const MutexLock lock(mutex_);
  const auto endpoint = endpoints_.find(resource);
  if (endpoint != endpoints_.end()) endpoint->second->stream_context->TryCancel();
}

void FakeKubelet::FillPods(v1::ListPodResourcesResponse* response) const {
  if (hide_pods_) return;
  const MutexLock lock(mutex_);
  for (const FakePod& pod : pods_) {
    auto* const listed = response->add_pod_resources();
    listed->set_name(pod.name);
    listed->set_namespace_(pod.pod_namespace);
    for (const FakeContainer& container : pod.containers) {
      auto* const entry = listed->add_containers();
      entry->set_name(container.name);
      const auto allocated = allocations_.find({pod.pod_namespace, pod.name, container.name});
      if (allocated != allocations_.end()) {
        for (const auto& [resource, allocation] : allocated->second) {
          auto* const devices = entry->add_devices();
          devices->set_resource_name(resource);
          for (const std::string& id : allocation.ids) devices->add_device_ids(id);
        }
      }
      for (const auto& [resource, ids] : container.given) {
        auto* const devices = entry->add_devices();
        devices->set_resource_name(resource);
        for (const std::string& id : ids) devices->add_device_ids(id);
      }
      for (const auto& claimed : container.claimed) {
        *entry->add_dynamic_resources()->add_claim_resources() = claimed;
      }
    }
  }
}

}  // namespace gantry::deviceplugin
