// A plugin's socket as a fake kubelet knows it from one registration: the calls to it, and the
// stream that is followed. Thread-safe, but Follow is for one thread.
#pragma once

#include <grpcpp/client_context.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "deviceplugin/device_plugin.grpc.pb.h"
#include "lib/base/result.h"

namespace gantry::deviceplugin {

class FakeEndpoint {
 public:
  using List = v1beta1::ListAndWatchResponse;

  // Dials as a kubelet does within Register, but once: a kubelet waits for 10 s, and would hide
  // that a plugin registers before it serves.
  static Result<std::shared_ptr<FakeEndpoint>> Dial(const std::string& resource,
                                                    const std::string& socket);

  const std::string& resource() const { return resource_; }
  const std::string& socket() const { return socket_; }
  bool pre_start_required() const { return options_.pre_start_required(); }

  // Until the stream ends.
  void Follow(const std::function<void(const List&)>& heard);
  void EndStream() { stream_.TryCancel(); }

  // Without a deadline. The ids are sent as they are.
  Result<v1beta1::ContainerAllocateResponse> Allocate(const std::vector<std::string>& ids);
  // For 30 s at most.
  Status PreStart(const std::vector<std::string>& ids);

 private:
  FakeEndpoint(std::string resource, std::string socket);

  const std::string resource_;
  const std::string socket_;
  const std::unique_ptr<v1beta1::DevicePlugin::Stub> stub_;
  v1beta1::DevicePluginOptions options_;
  grpc::ClientContext stream_;
};

}  // namespace gantry::deviceplugin
