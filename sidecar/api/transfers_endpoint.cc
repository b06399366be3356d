#include "sidecar/api/transfers_endpoint.h"

#include "lib/http/error_response.h"
#include "lib/wire/transfers_body.h"
#include "sidecar/api/caller.h"
#include "sidecar/api/request_reading.h"
#include "sidecar/api/transfer_view.h"

namespace gantry::api {
namespace {

using engine::TransferStatus;

http::Response TransferReply(const http::Request& request, const TransferStatus& transfer) {
  wire::BodyWriter writer = WriterFor(request);
  WriteTransfer(transfer, &writer);
  return Reply(request, IsTerminal(transfer.state) ? 200 : 202, std::move(writer));
}

Result<TransferStatus> SubmitOne(const ApiDependencies& api, const http::Request& request,
                                 wire::TransferRequest&& transfer, TimePoint wait_until) {
  RETURN_IF_ERROR(AuthorizeFor(api.workloads, request, transfer.workload));
  return api.transfers.Submit(std::move(transfer), wait_until);
}

// All are submitted before any is waited for; each is admitted or refused on its own.
http::Response SubmitList(const ApiDependencies& api, const http::Request& request,
                          const std::vector<wire::TransferRequest>& transfers,
                          TimePoint wait_until) {
  const TimePoint now = Clock::now();
  std::vector<Result<TransferStatus>> outcomes;
  outcomes.reserve(transfers.size());
  for (const wire::TransferRequest& transfer : transfers) {
    outcomes.push_back(SubmitOne(api, request, wire::TransferRequest(transfer), now));
  }
  wire::BodyWriter writer = WriterFor(request);
  writer.BeginList();
  for (size_t i = 0; i < outcomes.size(); ++i) {
    Result<TransferStatus>& outcome = outcomes[i];
    if (outcome && !IsTerminal(outcome->state) && wait_until > now) {
      auto later = api.transfers.Get(outcome->workload, outcome->id, wait_until);
      if (later) outcome = std::move(later);
    }
    writer.BeginObject();
    if (outcome) {
      writer.Field("id", outcome->id).Key("transfer");
      WriteTransfer(*outcome, &writer);
    } else {
      writer.Field("id", transfers[i].id).Key("error");
      http::WriteProblem(outcome.error(), &writer);
    }
    writer.EndObject();
  }
  writer.EndList();
  return Reply(request, 200, std::move(writer));
}

Result<AskedWaits::Wait> BeginWait(const ApiDependencies& api, const http::Request& request,
                                   std::string_view workload) {
  ASSIGN_OR_RETURN(const auto wait_ms, QueryNumber(request, "wait_ms"));
  return api.waits.Begin(request, workload, wait_ms);
}

}  // namespace

Result<http::Response> PostTransfers(const ApiDependencies& api, const http::Request& request) {
  api.transfers.Foresee();
  ASSIGN_OR_RETURN(const wire::BodyFormat format, BodyFormatOf(request));
  ASSIGN_OR_RETURN(wire::TransferBody body, wire::ReadTransferBody(format, request.body));
  const std::string_view workload =
      body.requests.empty() ? std::string_view() : body.requests.front().workload;
  ASSIGN_OR_RETURN(const AskedWaits::Wait wait, BeginWait(api, request, workload));
  if (body.is_list) return SubmitList(api, request, body.requests, wait.until());
  ASSIGN_OR_RETURN(const TransferStatus transfer,
                   SubmitOne(api, request, std::move(body.requests.front()), wait.until()));
  return TransferReply(request, transfer);
}

Result<http::Response> GetTransfer(const ApiDependencies& api, const http::Request& request) {
  ASSIGN_OR_RETURN(const std::string workload, WorkloadOfQuery(api.workloads, request));
  ASSIGN_OR_RETURN(const AskedWaits::Wait wait, BeginWait(api, request, workload));
  ASSIGN_OR_RETURN(const TransferStatus transfer,
                   api.transfers.Get(workload, request.name, wait.until()));
  return TransferReply(request, transfer);
}

Result<http::Response> ListTransfers(const ApiDependencies& api, const http::Request& request) {
  ASSIGN_OR_RETURN(const std::string workload, WorkloadToList(api.workloads, request));
  ASSIGN_OR_RETURN(const bool active, QueryBool(request, "active"));
  ASSIGN_OR_RETURN(const size_t limit, QueryLimit(request, kPageDefault, kPageMax));
  wire::BodyWriter writer = WriterFor(request);
  writer.BeginObject().Key("transfers").BeginList();
  for (const TransferStatus& transfer : api.transfers.List(workload, active, limit)) {
    WriteTransfer(transfer, &writer);
  }
  writer.EndList().EndObject();
  return Reply(request, 200, std::move(writer));
}

Result<http::Response> DeleteTransfer(const ApiDependencies& api, const http::Request& request) {
  ASSIGN_OR_RETURN(const std::string workload, WorkloadOfQuery(api.workloads, request));
  ASSIGN_OR_RETURN(const auto wait_ms, QueryNumber(request, "wait_ms"));
  ASSIGN_OR_RETURN(const TransferStatus transfer,
                   api.transfers.Cancel(workload, request.name, WaitIfItMay(request, wait_ms)));
  return TransferReply(request, transfer);
}

}  // namespace gantry::api
