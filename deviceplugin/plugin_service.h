// What the kubelet calls: the list of slots, Allocate while it admits a pod, and PreStartContainer
// before it starts a container. One object serves one socket. Thread-safe.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "deviceplugin/device_plugin.grpc.pb.h"
#include "deviceplugin/plugin_metrics.h"
#include "deviceplugin/slot_binder.h"
#include "deviceplugin/slot_files.h"
#include "deviceplugin/slot_list.h"

namespace gantry::deviceplugin {

enum class Binding { kCdi, kAllocate };

class PluginService final : public v1beta1::DevicePlugin::Service {
 public:
  // What it works with; all of them outlive it.
  struct Parts {
    SlotList& slots;
    SlotFiles& files;
    SlotBinder& binder;
    const PeerFolders& folders;
    PluginMetrics& metrics;
    Binding binding = Binding::kCdi;
    SlotPlanRules rules;
  };

  // `stream_ended` is called when the kubelet stops following the list, by any thread.
  PluginService(const Parts& parts, std::function<void()> stream_ended);

  // Ends what the kubelet follows; before the server is shut down.
  void Stop();
  bool followed() const { return streams_ > 0; }
  bool was_followed() const { return was_followed_; }

  grpc::Status GetDevicePluginOptions(grpc::ServerContext* context, const v1beta1::Empty* request,
                                      v1beta1::DevicePluginOptions* reply) override;
  grpc::Status ListAndWatch(grpc::ServerContext* context, const v1beta1::Empty* request,
                            grpc::ServerWriter<v1beta1::ListAndWatchResponse>* writer) override;
  // Answers at once: the kubelet has no deadline and admits no other pod meanwhile.
  grpc::Status Allocate(grpc::ServerContext* context, const v1beta1::AllocateRequest* request,
                        v1beta1::AllocateResponse* reply) override;
  grpc::Status PreStartContainer(grpc::ServerContext* context,
                                 const v1beta1::PreStartContainerRequest* request,
                                 v1beta1::PreStartContainerResponse* reply) override;

 private:
  Status AllocateOne(const v1beta1::ContainerAllocateRequest& request,
                     v1beta1::ContainerAllocateResponse* reply);
  // `known`: one of the list; else any that a list may have.
  template <typename Ids>
  Result<std::string> SlotAmong(const Ids& ids, bool known);

  const Parts parts_;
  const std::function<void()> stream_ended_;
  std::atomic<bool> stopping_ = false;
  std::atomic<int> streams_ = 0;
  std::atomic<bool> was_followed_ = false;
};

}  // namespace gantry::deviceplugin
