#include "tests/deviceplugin/fake_kubelet.h"

#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "deviceplugin/cdi/cdi_specs.h"

namespace gantry::deviceplugin {
namespace {

namespace fs = std::filesystem;

constexpr milliseconds kHangMax{20'000};

std::unique_ptr<grpc::Server> Serve(const std::string& socket, grpc::Service* service) {
  grpc::ServerBuilder builder;
  builder.AddListeningPort("unix://" + socket, grpc::InsecureServerCredentials());
  builder.RegisterService(service);
  return builder.BuildAndStart();
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
    if (kubelet_.hang_) {
      ++kubelet_.hanging_;
      const bool cancelled = Eventually([&] { return context->IsCancelled(); }, kHangMax);
      --kubelet_.hanging_;
      if (cancelled) return grpc::Status::CANCELLED;
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
  stopping_ = false;
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
  registration_server_.reset();
  pod_resources_server_.reset();
  stopping_ = true;
  std::vector<std::thread> followers;
  {
    const MutexLock lock(mutex_);
    for (const auto& endpoint : followed_) endpoint->EndStream();
    followed_.clear();
    followers.swap(followers_);
  }
  for (std::thread& follower : followers) follower.join();
  const MutexLock lock(mutex_);
  for (auto& [name, resource] : resources_) resource = Resource();
}

grpc::Status FakeKubelet::Register(const v1beta1::RegisterRequest& request) {
  if (refuse_) return {grpc::StatusCode::UNAVAILABLE, "made to refuse"};
  if (request.version() != "v1beta1") return {grpc::StatusCode::INVALID_ARGUMENT, "the version"};
  if (request.endpoint().find('/') != std::string::npos) {
    return {grpc::StatusCode::INVALID_ARGUMENT, "the endpoint is no name of a file"};
  }
  // It calls back before it answers.
  const auto endpoint =
      FakeEndpoint::Dial(request.resource_name(), plugin_folder() + "/" + request.endpoint());
  if (!endpoint) {
    ++failed_dials_;
    return {grpc::StatusCode::UNAVAILABLE, endpoint.error().message};
  }
  if (lose_streams_ > 0) {
    --lose_streams_;
    (*endpoint)->EndStream();
  }
  const MutexLock lock(mutex_);
  // An endpoint that it had of this resource goes on to be followed.
  resources_[request.resource_name()] = {*endpoint, /*stopped=*/false, {}};
  followed_.push_back(*endpoint);
  followers_.emplace_back([this, followed = *endpoint] { Follow(followed); });
  ++registrations_;
  return grpc::Status::OK;
}

void FakeKubelet::Follow(const std::shared_ptr<FakeEndpoint>& endpoint) {
  endpoint->Follow([&](const FakeEndpoint::List& list) { Heard(endpoint->resource(), list); });
  Eventually([&] { return stopping_.load(); }, goodbye_delay_);
  HeardGoodbye(*endpoint);
}

// Whichever endpoint says it: the last list counts.
void FakeKubelet::Heard(const std::string& resource, const FakeEndpoint::List& list) {
  const MutexLock lock(mutex_);
  auto& healthy = resources_[resource].healthy;
  healthy.clear();
  for (const auto& device : list.devices()) {
    healthy[device.id()] = device.health() == "Healthy";
  }
}

void FakeKubelet::HeardGoodbye(const FakeEndpoint& endpoint) {
  const MutexLock lock(mutex_);
  const auto found = resources_.find(endpoint.resource());
  if (found == resources_.end()) return;
  Resource& resource = found->second;
  const bool same =
      resource.endpoint != nullptr && resource.endpoint->socket() == endpoint.socket();
  if (!same && !confuse_instances_) return;
  resource.stopped = true;
  for (auto& [id, healthy] : resource.healthy) healthy = false;
}

void FakeKubelet::PassGracePeriod() {
  const MutexLock lock(mutex_);
  std::erase_if(resources_, [](const auto& resource) { return resource.second.stopped; });
}

// With what a kubelet says where it cannot (devicesToAllocate).
Result<std::vector<std::string>> FakeKubelet::Choose(const std::string& resource, int count) const {
  const auto found = resources_.find(resource);
  if (found == resources_.end()) {
    return Fail(ErrorCode::kNotFound, "cannot allocate unregistered device " + resource);
  }
  const auto& devices = found->second.healthy;
  if (std::none_of(devices.begin(), devices.end(), [](const auto& each) { return each.second; })) {
    return Fail(ErrorCode::kResourceExhausted,
                "no healthy devices present; cannot allocate unhealthy devices " + resource);
  }
  const auto used = pods_.InUse(resource);
  std::vector<std::string> ids;
  for (const auto& [id, healthy] : devices) {
    if (static_cast<int>(ids.size()) < count && healthy && !used.contains(id)) ids.push_back(id);
  }
  if (static_cast<int>(ids.size()) == count) return ids;
  return Fail(ErrorCode::kResourceExhausted,
              "requested number of devices unavailable for " + resource);
}

Status FakeKubelet::Allocate(const ContainerKey& key, const std::string& resource, int count) {
  std::vector<std::string> ids;
  {
    const MutexLock lock(mutex_);
    ASSIGN_OR_RETURN(ids, Choose(resource, count));
  }
  ASSIGN_OR_RETURN(auto response, AllocateIds(resource, ids));
  const MutexLock lock(mutex_);
  pods_.Give(key, resource, {ids, std::move(response)});
  return {};
}

Result<v1beta1::ContainerAllocateResponse> FakeKubelet::AllocateIds(
    const std::string& resource, const std::vector<std::string>& ids) {
  std::shared_ptr<FakeEndpoint> endpoint;
  {
    const MutexLock lock(mutex_);
    const auto found = resources_.find(resource);
    if (found == resources_.end() || found->second.stopped) {
      return Fail(ErrorCode::kPeerUnavailable, "the endpoint of " + resource + " has been stopped");
    }
    endpoint = found->second.endpoint;
  }
  return endpoint->Allocate(ids);
}

void FakeKubelet::RecordPod(const FakePod& pod, const std::string& container,
                            const std::string& resource, const FakePods::Allocation& given) {
  const MutexLock lock(mutex_);
  pods_.Give({pod.pod_namespace, pod.name, container}, resource, given);
  pods_.Add(pod);
}

Status FakeKubelet::Admit(const FakePod& pod) {
  for (const FakeContainer& container : pod.containers) {
    for (const auto& [resource, count] : container.of_plugin) {
      auto allocated = Allocate({pod.pod_namespace, pod.name, container.name}, resource, count);
      if (allocated) continue;
      Remove(pod.pod_namespace, pod.name);
      return allocated;
    }
  }
  const MutexLock lock(mutex_);
  pods_.Add(pod);
  return {};
}

void FakeKubelet::Remove(const std::string& pod_namespace, const std::string& pod) {
  const MutexLock lock(mutex_);
  pods_.Remove(pod_namespace, pod);
}

// As callPreStartContainerIfNeeded.
Status FakeKubelet::PreStart(const std::string& resource, const std::vector<std::string>& ids) {
  constexpr char kFailed[] = "device plugin PreStartContainer rpc failed with err: ";
  std::shared_ptr<FakeEndpoint> endpoint;
  {
    const MutexLock lock(mutex_);
    const auto found = resources_.find(resource);
    if (found == resources_.end()) {
      return Fail(ErrorCode::kNotFound,
                  "endpoint not found in cache for a registered resource: " + resource);
    }
    // A kubelet that was restarted has no options of a plugin that has not come back, and skips it.
    endpoint = found->second.endpoint;
    if (endpoint == nullptr || !endpoint->pre_start_required()) return {};
    if (found->second.stopped) {
      return Fail(ErrorCode::kPeerUnavailable, std::string(kFailed) + "it has been stopped");
    }
  }
  const Status status = endpoint->PreStart(ids);
  return status ? status : Fail(ErrorCode::kInternal, kFailed + status.error().message);
}

Result<nlohmann::json> FakeKubelet::StartContainer(const std::string& pod_namespace,
                                                   const std::string& pod,
                                                   const std::string& container) {
  FakePods::ByResource allocations;
  {
    const MutexLock lock(mutex_);
    allocations = pods_.Of({pod_namespace, pod, container});
  }
  ContainerEdits edits;
  for (const auto& [resource, allocation] : allocations) {
    RETURN_IF_ERROR(PreStart(resource, allocation.ids));
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
  const auto found = resources_.find(resource);
  return found == resources_.end() ? 0 : static_cast<int>(found->second.healthy.size());
}

int FakeKubelet::Allocatable(const std::string& resource) const {
  const MutexLock lock(mutex_);
  const auto found = resources_.find(resource);
  if (found == resources_.end()) return 0;
  const auto& devices = found->second.healthy;
  return static_cast<int>(std::count_if(devices.begin(), devices.end(),
                                        [](const auto& device) { return device.second; }));
}

std::vector<std::string> FakeKubelet::DevicesOf(const std::string& pod,
                                                const std::string& container,
                                                const std::string& resource) const {
  const MutexLock lock(mutex_);
  return pods_.Find(pod, container, resource).ids;
}

v1beta1::ContainerAllocateResponse FakeKubelet::AllocatedFor(const std::string& pod,
                                                             const std::string& container,
                                                             const std::string& resource) const {
  const MutexLock lock(mutex_);
  return pods_.Find(pod, container, resource).response;
}

void FakeKubelet::DropStream(const std::string& resource) {
  const MutexLock lock(mutex_);
  const auto found = resources_.find(resource);
  if (found != resources_.end() && found->second.endpoint != nullptr) {
    found->second.endpoint->EndStream();
  }
}

void FakeKubelet::FillPods(v1::ListPodResourcesResponse* response) const {
  if (hide_pods_) return;
  const MutexLock lock(mutex_);
  pods_.Fill(response);
}

}  // namespace gantry::deviceplugin
