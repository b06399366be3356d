#include "deviceplugin/kubelet_pod_devices.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

#include <set>
#include <utility>

#include "deviceplugin/pod_resources.grpc.pb.h"
#include "lib/base/mutex.h"
#include "lib/rpc/grpc_deadline.h"

namespace gantry::deviceplugin {
namespace {

constexpr int kAnswerBytesMax = 16 << 20;  // what the kubelet's own clients take
constexpr int kReconnectMsMax = 1'000;

ContainerDevices ContainerOf(const v1::ContainerResources& message) {
  ContainerDevices container;
  container.name = message.name();
  for (const v1::ContainerDevices& devices : message.devices()) {
    container.plugin_devices.push_back(
        {devices.resource_name(), {devices.device_ids().begin(), devices.device_ids().end()}});
  }
  for (const v1::DynamicResource& claim : message.dynamic_resources()) {
    for (const v1::ClaimResource& resource : claim.claim_resources()) {
      ClaimedDevice device{resource.driver_name(), resource.device_name(), {}};
      for (const v1::CDIDevice& cdi : resource.cdi_devices())
        device.cdi_names.push_back(cdi.name());
      container.claimed_devices.push_back(std::move(device));
    }
  }
  return container;
}

std::shared_ptr<grpc::Channel> ChannelTo(const std::string& socket) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kAnswerBytesMax);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kReconnectMsMax);
  return grpc::CreateCustomChannel("unix://" + socket, grpc::InsecureChannelCredentials(),
                                   arguments);
}

class Kubelet final : public PodDevicesSource {
 public:
  explicit Kubelet(const std::string& socket)
      : socket_(socket), stub_(v1::PodResourcesLister::NewStub(ChannelTo(socket))) {}

  Result<std::vector<PodDevices>> List(TimePoint deadline) override {
    grpc::ClientContext context;
    context.set_deadline(rpc::GrpcDeadline(deadline));
    v1::ListPodResourcesResponse response;
    if (!Begin(&context)) return Fail(ErrorCode::kCancelled, kStopping);
    const grpc::Status status = stub_->List(&context, {}, &response);
    if (!End(&context)) return Fail(ErrorCode::kCancelled, kStopping);
    if (!status.ok()) {
      const bool late = status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED;
      return Fail(late ? ErrorCode::kDeadlineExceeded : ErrorCode::kPeerUnavailable,
                  "the kubelet does not say which devices pods have, at " + socket_ + ": " +
                      status.error_message(),
                  "mount the folder of that socket, not the socket: it is made anew when the "
                  "kubelet starts");
    }
    std::vector<PodDevices> pods;
    for (const v1::PodResources& message : response.pod_resources()) {
      PodDevices pod{message.namespace_(), message.name(), {}};
      for (const auto& container : message.containers()) {
        pod.containers.push_back(ContainerOf(container));
      }
      pods.push_back(std::move(pod));
    }
    return pods;
  }

  void Stop() override EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    stopped_ = true;
    for (grpc::ClientContext* const context : waiting_) context->TryCancel();
  }

 private:
  static constexpr char kStopping[] = "the plugin is ending";

  // Both false after Stop.
  bool Begin(grpc::ClientContext* context) EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    if (!stopped_) waiting_.insert(context);
    return !stopped_;
  }
  bool End(grpc::ClientContext* context) EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    waiting_.erase(context);
    return !stopped_;
  }

  const std::string socket_;
  const std::unique_ptr<v1::PodResourcesLister::Stub> stub_;
  Mutex mutex_;
  bool stopped_ GUARDED_BY(mutex_) = false;
  std::set<grpc::ClientContext*> waiting_ GUARDED_BY(mutex_);
};

}  // namespace

std::unique_ptr<PodDevicesSource> KubeletPodDevices(const std::string& socket) {
  return std::make_unique<Kubelet>(socket);
}

}  // namespace gantry::deviceplugin
