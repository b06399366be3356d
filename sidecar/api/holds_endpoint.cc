#include "sidecar/api/holds_endpoint.h"

#include "lib/wire/hold_body.h"
#include "sidecar/api/caller.h"
#include "sidecar/api/request_reading.h"

namespace gantry::api {
namespace {

using engine::HoldInfo;

constexpr uint64_t kListDefault = 100;
constexpr uint64_t kListMax = 1'000;

void WriteHold(const HoldInfo& hold, wire::BodyWriter* writer) {
  writer->BeginObject()
      .Field("id", hold.id)
      .Field("workload", hold.workload)
      .Field("state", NameOf(hold.state))
      .Field("expires_unix_ms", hold.expires_unix_ms);
  if (hold.expected_consumers) writer->Field("expected_consumers", *hold.expected_consumers);
  writer->Field("consumers", hold.consumers).Field("reading", hold.reading).EndObject();
}

Response HoldReply(const Request& request, int status, const HoldInfo& hold) {
  wire::BodyWriter writer = WriterFor(request);
  WriteHold(hold, &writer);
  return Reply(request, status, std::move(writer));
}

Result<engine::HoldTable*> HoldsOf(const ApiDependencies& api) {
  if (api.holds != nullptr) return api.holds;
  return Fail(ErrorCode::kPathUnavailable, "this sidecar keeps no holds");
}

// The workload that owns the hold: ids are unique within a workload only.
Result<std::string> OwnerOf(const ApiDependencies& api, const Request& request) {
  std::string workload = QueryText(request, "workload");
  if (workload.empty()) {
    RETURN_IF_ERROR(AuthorizeAny(api.workloads, request));
    return Fail(ErrorCode::kInvalidArgument, "the query parameter workload is missing",
                "add ?workload=<name>", "?workload");
  }
  RETURN_IF_ERROR(AuthorizeFor(api.workloads, request, workload));
  return workload;
}

}  // namespace

Result<Response> PutHold(const ApiDependencies& api, const Request& request) {
  ASSIGN_OR_RETURN(const wire::BodyFormat format, BodyFormatOf(request));
  ASSIGN_OR_RETURN(const wire::HoldRequest body, wire::ReadHoldBody(format, request.body));
  ASSIGN_OR_RETURN(const uint64_t generation, AuthorizeFor(api.workloads, request, body.workload));
  ASSIGN_OR_RETURN(engine::HoldTable * holds, HoldsOf(api));
  ASSIGN_OR_RETURN(const HoldInfo hold, holds->Put(std::string(request.name), body, generation));
  return HoldReply(request, 200, hold);
}

Result<Response> PatchHold(const ApiDependencies& api, const Request& request) {
  ASSIGN_OR_RETURN(const wire::BodyFormat format, BodyFormatOf(request));
  ASSIGN_OR_RETURN(const wire::HoldExtension body, wire::ReadHoldExtension(format, request.body));
  RETURN_IF_ERROR(AuthorizeFor(api.workloads, request, body.workload));
  ASSIGN_OR_RETURN(engine::HoldTable * holds, HoldsOf(api));
  ASSIGN_OR_RETURN(const HoldInfo hold, holds->Extend(body.workload, request.name, body.ttl_ms));
  return HoldReply(request, 200, hold);
}

Result<Response> GetHold(const ApiDependencies& api, const Request& request) {
  ASSIGN_OR_RETURN(const std::string workload, OwnerOf(api, request));
  ASSIGN_OR_RETURN(engine::HoldTable * holds, HoldsOf(api));
  ASSIGN_OR_RETURN(const HoldInfo hold, holds->Get(workload, request.name));
  return HoldReply(request, 200, hold);
}

Result<Response> ListHolds(const ApiDependencies& api, const Request& request) {
  ASSIGN_OR_RETURN(const std::string workload, WorkloadToList(api.workloads, request));
  ASSIGN_OR_RETURN(const size_t limit, QueryLimit(request, kListDefault, kListMax));
  ASSIGN_OR_RETURN(const engine::HoldTable* holds, HoldsOf(api));
  wire::BodyWriter writer = WriterFor(request);
  writer.BeginObject().Key("holds").BeginList();
  for (const HoldInfo& hold : holds->List(workload, limit)) WriteHold(hold, &writer);
  writer.EndList().EndObject();
  return Reply(request, 200, std::move(writer));
}

Result<Response> DeleteHold(const ApiDependencies& api, const Request& request) {
  ASSIGN_OR_RETURN(const std::string workload, OwnerOf(api, request));
  ASSIGN_OR_RETURN(engine::HoldTable * holds, HoldsOf(api));
  RETURN_IF_ERROR(holds->Release(workload, request.name));
  return NoContent();
}

}  // namespace gantry::api
