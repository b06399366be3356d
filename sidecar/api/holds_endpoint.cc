#include "sidecar/api/holds_endpoint.h"

#include "lib/wire/hold_body.h"
#include "sidecar/api/caller.h"
#include "sidecar/api/request_reading.h"

namespace gantry::api {
namespace {

using engine::HoldInfo;

void WriteHold(const HoldInfo& hold, wire::BodyWriter* writer) {
  writer->BeginObject()
      .Field("id", hold.id)
      .Field("workload", hold.workload)
      .Field("state", NameOf(hold.state))
      .Field("expires_unix_ms", hold.expires_unix_ms);
  if (hold.expected_consumers) writer->Field("expected_consumers", *hold.expected_consumers);
  writer->Field("consumers", hold.consumers).Field("reading", hold.reading).EndObject();
}

http::Response HoldReply(const http::Request& request, int status, const HoldInfo& hold) {
  wire::BodyWriter writer = WriterFor(request);
  WriteHold(hold, &writer);
  return Reply(request, status, std::move(writer));
}

Result<engine::HoldTable*> HoldsOf(const ApiDependencies& api) {
  if (api.holds != nullptr) return api.holds;
  return Fail(ErrorCode::kPathUnavailable, "this sidecar keeps no holds");
}

}  // namespace

Result<http::Response> PutHold(const ApiDependencies& api, const http::Request& request) {
  ASSIGN_OR_RETURN(const wire::BodyFormat format, BodyFormatOf(request));
  ASSIGN_OR_RETURN(const wire::HoldRequest body, wire::ReadHoldBody(format, request.body));
  ASSIGN_OR_RETURN(const uint64_t generation, AuthorizeFor(api.workloads, request, body.workload));
  ASSIGN_OR_RETURN(engine::HoldTable * holds, HoldsOf(api));
  ASSIGN_OR_RETURN(const HoldInfo hold, holds->Put(std::string(request.name), body, generation));
  return HoldReply(request, 200, hold);
}

Result<http::Response> PatchHold(const ApiDependencies& api, const http::Request& request) {
  ASSIGN_OR_RETURN(const wire::BodyFormat format, BodyFormatOf(request));
  ASSIGN_OR_RETURN(const wire::HoldExtension body, wire::ReadHoldExtension(format, request.body));
  ASSIGN_OR_RETURN(const uint64_t generation, AuthorizeFor(api.workloads, request, body.workload));
  ASSIGN_OR_RETURN(engine::HoldTable * holds, HoldsOf(api));
  ASSIGN_OR_RETURN(const HoldInfo hold,
                   holds->Extend(body.workload, generation, request.name, body.ttl_ms));
  return HoldReply(request, 200, hold);
}

Result<http::Response> GetHold(const ApiDependencies& api, const http::Request& request) {
  ASSIGN_OR_RETURN(const std::string workload, WorkloadOfQuery(api.workloads, request));
  ASSIGN_OR_RETURN(engine::HoldTable * holds, HoldsOf(api));
  ASSIGN_OR_RETURN(const HoldInfo hold, holds->Get(workload, request.name));
  return HoldReply(request, 200, hold);
}

Result<http::Response> ListHolds(const ApiDependencies& api, const http::Request& request) {
  ASSIGN_OR_RETURN(const std::string workload, WorkloadToList(api.workloads, request));
  ASSIGN_OR_RETURN(const size_t limit, QueryLimit(request, kPageDefault, kPageMax));
  ASSIGN_OR_RETURN(engine::HoldTable * holds, HoldsOf(api));
  wire::BodyWriter writer = WriterFor(request);
  writer.BeginObject().Key("holds").BeginList();
  for (const HoldInfo& hold : holds->List(workload, limit)) WriteHold(hold, &writer);
  writer.EndList().EndObject();
  return Reply(request, 200, std::move(writer));
}

Result<http::Response> DeleteHold(const ApiDependencies& api, const http::Request& request) {
  ASSIGN_OR_RETURN(const std::string workload, WorkloadOfQuery(api.workloads, request));
  ASSIGN_OR_RETURN(engine::HoldTable * holds, HoldsOf(api));
  ASSIGN_OR_RETURN(const HoldInfo hold, holds->Release(workload, request.name));
  // Not before its readers have ended may the blocks be used for something else.
  if (hold.state == engine::HoldState::kEnding) return HoldReply(request, 202, hold);
  return NoContent();
}

}  // namespace gantry::api
