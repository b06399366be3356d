#include "sidecar/api/workloads_endpoint.h"

#include <algorithm>

#include "lib/base/name.h"
#include "lib/base/random_id.h"
#include "lib/wire/request_bodies.h"
#include "sidecar/api/caller.h"
#include "sidecar/api/request_reading.h"
#include "sidecar/registry/workload_end.h"

namespace gantry::api {
namespace {

using registry::WorkloadInfo;

// The token is written for the one who registered, and never read out again.
enum class Token { kShown, kHidden };

// Whether owners of GPU memory are to hand over dma-bufs of it, for RDMA.
bool WantsDmaBufs(const StatusInfo& status) {
  return std::any_of(
      status.rdma_devices.begin(), status.rdma_devices.end(),
      [](const RdmaDeviceView& device) { return device.no_dma_buf_because.empty(); });
}

void WriteWorkload(const WorkloadInfo& info, Token token, const StatusInfo& status,
                   wire::BodyWriter* writer) {
  writer->BeginObject()
      .Field("name", info.name)
      .Field("engine_id", info.engine_id)
      .Field("generation", HexOf(info.generation));
  if (token == Token::kShown) writer->Field("lease_token", info.lease_token);
  writer->Field("ttl_ms", info.ttl.count())
      .Field("attached", info.attached)
      .Field("pid", info.pid)
      .Field("fds_held", info.fds_held)
      .Field("handoff_socket", status.handoff_socket)
      .Field("wants_dma_bufs", WantsDmaBufs(status))
      .Field("takes_unsealed_memory", status.takes_unsealed_memory)
      .EndObject();
}

// The uid to register for. On TCP a token can renew a lease and not make one.
Result<uid_t> RegisteringUid(const ApiDependencies& api, const http::Request& request,
                             std::string_view name, const std::optional<std::string>& engine_id) {
  ASSIGN_OR_RETURN(const std::string_view token, BearerToken(request));
  if (token.empty() && request.uid) return *request.uid;
  if (token.empty()) {
    return Fail(ErrorCode::kUnauthenticated, "a workload is registered on the Unix socket",
                "on TCP a lease can only be renewed, with its token");
  }
  ASSIGN_OR_RETURN(const WorkloadInfo owner, api.workloads.ByToken(token));
  if (owner.name != name) {
    return Fail(ErrorCode::kPermissionDenied, "the lease token is another workload's");
  }
  if (!request.uid && engine_id && *engine_id != owner.engine_id) {
    return Fail(ErrorCode::kPermissionDenied, "another engine id is a new registration",
                "register on the Unix socket", "/engine_id");
  }
  return owner.uid;
}

std::optional<milliseconds> TtlOf(const wire::WorkloadBody& body) {
  if (!body.ttl_ms) return std::nullopt;
  // Any value over the limit is refused as such; this one cannot overflow.
  constexpr uint64_t kMillisecondsMax = uint64_t{1} << 40;
  return milliseconds(static_cast<int64_t>(std::min(*body.ttl_ms, kMillisecondsMax)));
}

}  // namespace

Result<http::Response> PutWorkload(const ApiDependencies& api, const http::Request& request) {
  ASSIGN_OR_RETURN(const wire::BodyFormat format, BodyFormatOf(request));
  ASSIGN_OR_RETURN(const wire::WorkloadBody body, wire::ReadWorkloadBody(format, request.body));
  const std::string name(request.name);
  RETURN_IF_ERROR(CheckName(name, "/name"));
  ASSIGN_OR_RETURN(const uid_t uid, RegisteringUid(api, request, name, body.engine_id));
  const auto before = api.workloads.Get(name);
  const std::string engine_id = body.engine_id ? *body.engine_id
                                : before       ? before->engine_id
                                               : std::string();
  ASSIGN_OR_RETURN(const WorkloadInfo info, api.workloads.Put(name, engine_id, uid, TtlOf(body)));
  const bool renewed = before && before->generation == info.generation;
  wire::BodyWriter writer = WriterFor(request);
  WriteWorkload(info, Token::kShown, api.status(), &writer);
  return Reply(request, renewed ? 200 : 201, std::move(writer));
}

Result<http::Response> GetWorkload(const ApiDependencies& api, const http::Request& request) {
  ASSIGN_OR_RETURN(const WorkloadInfo info, api.workloads.Get(request.name));
  wire::BodyWriter writer = WriterFor(request);
  WriteWorkload(info, Token::kHidden, api.status(), &writer);
  return Reply(request, 200, std::move(writer));
}

Result<http::Response> ListWorkloads(const ApiDependencies& api, const http::Request& request) {
  const StatusInfo status = api.status();
  wire::BodyWriter writer = WriterFor(request);
  writer.BeginObject().Key("workloads").BeginList();
  for (const WorkloadInfo& info : api.workloads.List()) {
    WriteWorkload(info, Token::kHidden, status, &writer);
  }
  writer.EndList().EndObject();
  return Reply(request, 200, std::move(writer));
}

Result<http::Response> DeleteWorkload(const ApiDependencies& api, const http::Request& request) {
  RETURN_IF_ERROR(AuthorizeFor(api.workloads, request, request.name));
  RETURN_IF_ERROR(api.workloads.Remove(request.name, registry::kDeleted.why));
  return NoContent();
}

}  // namespace gantry::api
