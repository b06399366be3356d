#include "sidecar/api/caller.h"

#include "lib/base/name.h"
#include "sidecar/api/request_reading.h"

namespace gantry::api {
namespace {

constexpr std::string_view kScheme = "Bearer ";

}  // namespace

Result<std::string_view> BearerToken(const http::Request& request) {
  if (request.authorization.empty()) return std::string_view();
  if (!request.authorization.starts_with(kScheme) ||
      request.authorization.size() == kScheme.size()) {
    return Fail(ErrorCode::kUnauthenticated, "the Authorization header is not understood",
                "send \"Authorization: Bearer <lease token>\"");
  }
  return request.authorization.substr(kScheme.size());
}

Result<uint64_t> AuthorizeFor(const registry::WorkloadTable& workloads,
                              const http::Request& request, std::string_view workload) {
  ASSIGN_OR_RETURN(const std::string_view token, BearerToken(request));
  return workloads.Authorize(workload, token, request.uid);
}

Status AuthorizeAny(const registry::WorkloadTable& workloads, const http::Request& request) {
  ASSIGN_OR_RETURN(const std::string_view token, BearerToken(request));
  if (token.empty() && request.uid) return {};
  if (token.empty()) {
    return Fail(ErrorCode::kUnauthenticated, "there is no lease token",
                "send \"Authorization: Bearer <lease token>\", or use the Unix socket");
  }
  RETURN_IF_ERROR(workloads.ByToken(token));
  return {};
}

Result<std::string> WorkloadToList(const registry::WorkloadTable& workloads,
                                   const http::Request& request) {
  std::string workload = QueryText(request, "workload");
  if (request.query->contains("workload")) {
    RETURN_IF_ERROR(CheckName(workload, "?workload"));
    RETURN_IF_ERROR(AuthorizeFor(workloads, request, workload));
    return workload;
  }
  RETURN_IF_ERROR(AuthorizeAny(workloads, request));
  if (request.uid) return workload;
  return Fail(ErrorCode::kPermissionDenied, "on TCP a list is of one workload",
              "add ?workload=<name>", "?workload");
}

Result<std::string> WorkloadOfQuery(const registry::WorkloadTable& workloads,
                                    const http::Request& request) {
  std::string workload = QueryText(request, "workload");
  if (workload.empty()) {
    RETURN_IF_ERROR(AuthorizeAny(workloads, request));
    return Fail(ErrorCode::kInvalidArgument, "the query parameter workload is missing",
                "add ?workload=<name>", "?workload");
  }
  RETURN_IF_ERROR(AuthorizeFor(workloads, request, workload));
  return workload;
}

}  // namespace gantry::api
