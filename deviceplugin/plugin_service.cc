#include "deviceplugin/plugin_service.h"

#include <algorithm>
#include <utility>

#include "lib/base/log.h"
#include "lib/wire/slot_variables.h"

namespace gantry::deviceplugin {
namespace {

constexpr char kHealthy[] = "Healthy";
constexpr char kUnhealthy[] = "Unhealthy";
// How often a stream without news looks whether the kubelet has gone.
constexpr milliseconds kLookForEnd{500};
// Of the kubelet for PreStartContainer: 30 s (its pluginmanager's constant); less, so that the
// reason arrives instead of its deadline.
constexpr milliseconds kPreStartMax{25'000};

// The kubelet puts the message into the pod's events, and nothing else.
grpc::Status ForKubelet(const Status& status) {
  if (status) return grpc::Status::OK;
  const Error& error = status.error();
  const auto code = static_cast<grpc::StatusCode>(InfoOf(error.code).grpc_status);
  return {code, error.message + (error.hint.empty() ? "" : " (" + error.hint + ")")};
}

void FillList(const SlotList& slots, bool healthy, v1beta1::ListAndWatchResponse* list) {
  for (const std::string& name : slots.names()) {
    v1beta1::Device* const device = list->add_devices();
    device->set_id(name);
    device->set_health(healthy ? kHealthy : kUnhealthy);
  }
}

void FillWith(const SlotPlan& plan, v1beta1::ContainerAllocateResponse* reply) {
  for (const std::string& file : plan.edits.DeviceFiles()) {
    v1beta1::DeviceSpec* const device = reply->add_devices();
    device->set_host_path(file);
    device->set_container_path(file);
    device->set_permissions("rw");
  }
  v1beta1::Mount* const mount = reply->add_mounts();
  mount->set_host_path(plan.peer_folder);
  mount->set_container_path(std::string(wire::kPeerFolderInContainer));
  for (const auto& variable : plan.edits.json().value("env", nlohmann::json::array())) {
    const auto& text = variable.get_ref<const std::string&>();
    const size_t equals = text.find('=');
    (*reply->mutable_envs())[text.substr(0, equals)] = text.substr(equals + 1);
  }
}

}  // namespace

PluginService::PluginService(const Parts& parts, std::function<void()> stream_ended)
    : parts_(parts), stream_ended_(std::move(stream_ended)) {}

void PluginService::Stop() {
  stopping_ = true;
  parts_.slots.Wake();
}

grpc::Status PluginService::GetDevicePluginOptions(grpc::ServerContext*, const v1beta1::Empty*,
                                                   v1beta1::DevicePluginOptions* reply) {
  reply->set_pre_start_required(parts_.binding == Binding::kCdi);
  return grpc::Status::OK;
}

grpc::Status PluginService::ListAndWatch(
    grpc::ServerContext* context, const v1beta1::Empty*,
    grpc::ServerWriter<v1beta1::ListAndWatchResponse>* writer) {
  ++streams_;
  was_followed_ = true;
  log::Info("the kubelet follows the list of slots");
  bool told = false;
  bool healthy = false;
  while (!stopping_ && !context->IsCancelled()) {
    const uint64_t version = parts_.slots.version();
    if (const bool now = parts_.slots.healthy(); !told || now != healthy) {
      v1beta1::ListAndWatchResponse list;
      FillList(parts_.slots, now, &list);
      if (!writer->Write(list)) break;
      told = true;
      healthy = now;
    }
    parts_.slots.AwaitChange(version, Clock::now() + kLookForEnd);
  }
  --streams_;
  stream_ended_();
  return grpc::Status::OK;
}

// More than one slot for a container would say the same things twice.
template <typename Ids>
Result<std::string> PluginService::SlotAmong(const Ids& ids, bool known) {
  if (ids.size() == 1 && (known ? parts_.slots.Knows(ids.Get(0)) : SlotList::IsName(ids.Get(0)))) {
    return ids.Get(0);
  }
  parts_.metrics.BindFailed(BindFailure::kUnknownSlot);
  if (ids.size() != 1) {
    return Fail(
        ErrorCode::kInvalidArgument,
        "a container asks for " + std::to_string(ids.size()) + " of " + parts_.rules.resource,
        "ask for 1: a sidecar needs one, however many GPUs its pod has");
  }
  return Fail(ErrorCode::kInvalidArgument,
              "'" + ids.Get(0) + "' is no slot of " + parts_.rules.resource + ", which has " +
                  std::to_string(parts_.slots.names().size()),
              "were there more of them (--slots) when it was given out?");
}

Status PluginService::AllocateOne(const v1beta1::ContainerAllocateRequest& request,
                                  v1beta1::ContainerAllocateResponse* reply) {
  ASSIGN_OR_RETURN(const std::string slot, SlotAmong(request.devices_ids(), /*known=*/true));
  if (parts_.binding == Binding::kAllocate) {
    ASSIGN_OR_RETURN(const SlotPlan plan, PlanForAnyPod(parts_.rules, slot));
    RETURN_IF_ERROR(parts_.folders.Make(plan.peer_folder));
    FillWith(plan, reply);
    return {};
  }
  // What it was for is over: should the kubelet start the container without asking again, it finds
  // no device of that name, and not another pod's.
  RETURN_IF_ERROR(parts_.files.Clear(slot));
  reply->add_cdi_devices()->set_name(parts_.files.CdiNameOf(slot));
  return {};
}

grpc::Status PluginService::Allocate(grpc::ServerContext*, const v1beta1::AllocateRequest* request,
                                     v1beta1::AllocateResponse* reply) {
  const TimePoint start = Clock::now();
  Status status;
  for (const auto& container : request->container_requests()) {
    status = AllocateOne(container, reply->add_container_responses());
    if (!status) {
      log::Warning("a slot is not allocated", {{"error", status.error()}});
      break;
    }
  }
  parts_.metrics.Allocated(SecondsBetween(start, Clock::now()));
  return ForKubelet(status);
}

grpc::Status PluginService::PreStartContainer(grpc::ServerContext* context,
                                              const v1beta1::PreStartContainerRequest* request,
                                              v1beta1::PreStartContainerResponse*) {
  const TimePoint start = Clock::now();
  Status status;
  // Of a longer list that there was, too: who has the slot from then may start again.
  if (const auto slot = SlotAmong(request->devices_ids(), /*known=*/false); !slot) {
    status = Fail(slot.error());
  } else if (!context->IsCancelled()) {
    status = parts_.binder.Bind(*slot, start + kPreStartMax);
  }
  parts_.metrics.PreStarted(status.has_value(), SecondsBetween(start, Clock::now()));
  return ForKubelet(status);
}

}  // namespace gantry::deviceplugin
