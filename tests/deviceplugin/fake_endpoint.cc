#include "tests/deviceplugin/fake_endpoint.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <sys/socket.h>

#include <chrono>
#include <utility>

#include "lib/base/fd_passing.h"

namespace gantry::deviceplugin {
namespace {

constexpr std::chrono::seconds kPreStartMax{30};

std::shared_ptr<grpc::Channel> NewChannel(const std::string& socket) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel("unix://" + socket, grpc::InsecureChannelCredentials(),
                                   arguments);
}

}  // namespace

FakeEndpoint::FakeEndpoint(std::string resource, std::string socket)
    : resource_(std::move(resource)),
      socket_(std::move(socket)),
      stub_(v1beta1::DevicePlugin::NewStub(NewChannel(socket_))) {}

Result<std::shared_ptr<FakeEndpoint>> FakeEndpoint::Dial(const std::string& resource,
                                                         const std::string& socket) {
  if (const auto dialled = ConnectUnix(socket, SOCK_STREAM); !dialled) {
    return Fail(ErrorCode::kPeerUnavailable,
                "failed to dial device plugin: " + dialled.error().message);
  }
  std::shared_ptr<FakeEndpoint> endpoint(new FakeEndpoint(resource, socket));
  grpc::ClientContext context;  // without a deadline
  const grpc::Status status =
      endpoint->stub_->GetDevicePluginOptions(&context, {}, &endpoint->options_);
  if (!status.ok()) return Fail(ErrorCode::kInternal, status.error_message());
  return endpoint;
}

void FakeEndpoint::Follow(const std::function<void(const List&)>& heard) {
  const auto reader = stub_->ListAndWatch(&stream_, {});
  List list;
  while (reader->Read(&list)) heard(list);
  static_cast<void>(reader->Finish());
}

Result<v1beta1::ContainerAllocateResponse> FakeEndpoint::Allocate(
    const std::vector<std::string>& ids) {
  v1beta1::AllocateRequest request;
  auto* const container = request.add_container_requests();
  for (const std::string& id : ids) container->add_devices_ids(id);
  grpc::ClientContext context;
  v1beta1::AllocateResponse response;
  const grpc::Status status = stub_->Allocate(&context, request, &response);
  if (!status.ok()) return Fail(ErrorCode::kInternal, status.error_message());
  if (response.container_responses_size() != 1) {
    return Fail(ErrorCode::kInternal, "the plugin answers for " +
                                          std::to_string(response.container_responses_size()) +
                                          " containers of 1");
  }
  return response.container_responses(0);
}

Status FakeEndpoint::PreStart(const std::vector<std::string>& ids) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kPreStartMax);
  v1beta1::PreStartContainerRequest request;
  for (const std::string& id : ids) request.add_devices_ids(id);
  v1beta1::PreStartContainerResponse response;
  const grpc::Status status = stub_->PreStartContainer(&context, request, &response);
  return status.ok() ? Status() : Fail(ErrorCode::kInternal, status.error_message());
}

}  // namespace gantry::deviceplugin
