#include "sidecar/api/routes.h"

#include <algorithm>
#include <optional>
#include <string>

#include "lib/http/error_response.h"
#include "sidecar/api/buffers_endpoint.h"
#include "sidecar/api/caller.h"
#include "sidecar/api/events_endpoint.h"
#include "sidecar/api/holds_endpoint.h"
#include "sidecar/api/notifications_endpoint.h"
#include "sidecar/api/peers_endpoint.h"
#include "sidecar/api/request_reading.h"
#include "sidecar/api/status_endpoint.h"
#include "sidecar/api/transfers_endpoint.h"
#include "sidecar/api/views_endpoint.h"
#include "sidecar/api/workloads_endpoint.h"

namespace gantry::api {
namespace {

using Query = std::array<std::string_view, 3>;
constexpr Query kNone = {};

// clang-format off
constexpr Route kRoutes[] = {
    {"POST",   "/v1/transfers",         Guard::kWorkload, {"wait_ms"},                     PostTransfers},
    {"GET",    "/v1/transfers",         Guard::kWorkload, {"workload", "active", "limit"}, ListTransfers},
    {"GET",    "/v1/transfers/{id}",    Guard::kWorkload, {"workload", "wait_ms"},         GetTransfer},
    {"DELETE", "/v1/transfers/{id}",    Guard::kWorkload, {"workload", "wait_ms"},         DeleteTransfer},
    {"POST",   "/v1/completions:poll",  Guard::kWorkload, kNone,                           PollCompletions},
    {"GET",    "/v1/events",            Guard::kWorkload, {"workload", "cursor"},          StreamEvents},
    {"POST",   "/v1/notifications",     Guard::kWorkload, kNone,                           PostNotification},
    {"PUT",    "/v1/holds/{id}",        Guard::kWorkload, kNone,                           PutHold},
    {"PATCH",  "/v1/holds/{id}",        Guard::kWorkload, kNone,                           PatchHold},
    {"GET",    "/v1/holds",             Guard::kWorkload, {"workload", "limit"},           ListHolds},
    {"GET",    "/v1/holds/{id}",        Guard::kWorkload, {"workload"},                    GetHold},
    {"DELETE", "/v1/holds/{id}",        Guard::kWorkload, {"workload"},                    DeleteHold},
    {"PUT",    "/v1/workloads/{name}",  Guard::kWorkload, kNone,                           PutWorkload},
    {"GET",    "/v1/workloads",         Guard::kCaller,   kNone,                           ListWorkloads},
    {"GET",    "/v1/workloads/{name}",  Guard::kCaller,   kNone,                           GetWorkload},
    {"DELETE", "/v1/workloads/{name}",  Guard::kWorkload, kNone,                           DeleteWorkload},
    {"POST",   "/v1/buffers",           Guard::kWorkload, kNone,                           PostBuffers},
    {"GET",    "/v1/buffers",           Guard::kWorkload, {"workload", "cursor", "limit"}, ListBuffers},
    {"GET",    "/v1/buffers/{id}",      Guard::kWorkload, kNone,                           GetBuffer},
    {"DELETE", "/v1/buffers/{id}",      Guard::kWorkload, {"drain_ms"},                    DeleteBuffer},
    {"POST",   "/v1/buffers:resolve",   Guard::kWorkload, kNone,                           ResolveBuffer},
    {"POST",   "/v1/buffers:suspend",   Guard::kWorkload, kNone,                           SuspendBuffers},
    {"POST",   "/v1/buffers:resume",    Guard::kWorkload, kNone,                           ResumeBuffers},
    {"POST",   "/v1/views",             Guard::kWorkload, kNone,                           PostViews},
    {"GET",    "/v1/views",             Guard::kWorkload, {"workload", "cursor", "limit"}, ListViews},
    {"GET",    "/v1/views/{id}",        Guard::kWorkload, {"workload"},                    GetView},
    {"DELETE", "/v1/views/{id}",        Guard::kWorkload, {"workload"},                    DeleteView},
    {"PUT",    "/v1/peers/{name}",      Guard::kCaller,   {"wait_ms"},                     PutPeer},
    {"GET",    "/v1/peers",             Guard::kCaller,   kNone,                           ListPeers},
    {"GET",    "/v1/peers/{name}",      Guard::kCaller,   kNone,                           GetPeer},
    {"DELETE", "/v1/peers/{name}",      Guard::kCaller,   kNone,                           DeletePeer},
    {"GET",    "/v1/status",            Guard::kCaller,   kNone,                           GetStatus},
    {"GET",    "/v1/info",              Guard::kOpen,     kNone,                           GetInfo},
    {"GET",    "/v1/debug/buffers",     Guard::kCaller,   kNone,                           DebugBuffers},
    {"GET",    "/v1/debug/transfers",   Guard::kCaller,   kNone,                           DebugTransfers},
    {"GET",    "/v1/debug/peers",       Guard::kCaller,   kNone,                           DebugPeers},
    {"GET",    "/v1/debug/workers",     Guard::kCaller,   kNone,                           DebugWorkers},
    {"GET",    "/openapi.yaml",         Guard::kCaller,   kNone,                           GetOpenApi},
    {"GET",    "/metrics",              Guard::kCaller,   kNone,                           GetMetrics},
    {"GET",    "/healthz",              Guard::kOpen,     kNone,                           GetHealth},
    {"GET",    "/readyz",               Guard::kOpen,     kNone,                           GetReadiness},
};
// clang-format on

// Any text may follow it, with '/' too; other names have no '/'.
constexpr std::string_view kBeforeAnyText = "/v1/holds/";

// True when the pattern fits; *name is then what stands in the place of its {part}.
bool Matches(std::string_view pattern, std::string_view path, std::string_view* name) {
  const size_t brace = pattern.find('{');
  if (brace == std::string_view::npos) return pattern == path;
  if (!path.starts_with(pattern.substr(0, brace))) return false;
  *name = path.substr(brace);
  if (pattern.starts_with(kBeforeAnyText)) return !name->empty();
  return !name->empty() && name->find('/') == std::string_view::npos;
}

struct Choice {
  const Route* route = nullptr;
  std::string_view pattern;  // fits, perhaps with another method
  std::string_view name;
  std::string allowed;  // the methods of the pattern; empty: no such path
};

Choice Choose(std::string_view method, std::string_view path) {
  Choice choice;
  for (const Route& route : kRoutes) {
    std::string_view name;
    if (!Matches(route.pattern, path, &name)) continue;
    choice.pattern = route.pattern;
    if (route.method == method) {
      choice.route = &route;
      choice.name = name;
      return choice;
    }
    if (!choice.allowed.empty()) choice.allowed += ", ";
    choice.allowed += route.method;
  }
  return choice;
}

Status CheckQuery(const Route& route, const http::Request& request) {
  std::string_view before;
  for (const auto& [name, value] : *request.query) {
    const bool known = std::find(route.query.begin(), route.query.end(), name) != route.query.end();
    if (!known || name.empty() || name == before) {
      return Fail(ErrorCode::kInvalidArgument,
                  known && !name.empty() ? "a query parameter is there twice"
                                         : "there is no such query parameter",
                  "see /openapi.yaml", "?" + name.substr(0, 64));
    }
    before = name;
  }
  return {};
}

Result<http::Response> Call(const ApiDependencies& api, const Route& route,
                            const http::Request& request) {
  if (route.guard == Guard::kCaller) RETURN_IF_ERROR(AuthorizeAny(api.workloads, request));
  RETURN_IF_ERROR(CheckQuery(route, request));
  return route.handle(api, request);
}

http::Response Refuse(const Choice& choice, const http::Request& request) {
  if (choice.allowed.empty()) {
    return http::ErrorResponse(Error(ErrorCode::kNotFound,
                                     "there is no resource '" + std::string(request.path) + "'",
                                     "see /openapi.yaml"));
  }
  http::Response response = http::ErrorResponse(
      Error(ErrorCode::kMethodNotAllowed, "this resource has the methods " + choice.allowed));
  response.headers.emplace_back("Allow", choice.allowed);
  return response;
}

}  // namespace

std::span<const Route> Routes() { return kRoutes; }

http::Handler MakeApi(const ApiDependencies& api) {
  return [api](const http::Request& request) {
    const TimePoint start = Clock::now();
    const Choice choice = Choose(request.method, request.path);
    http::Response response;
    if (choice.route == nullptr) {
      response = Refuse(choice, request);
    } else {
      http::Request routed = request;
      routed.name = choice.name;
      auto result = Call(api, *choice.route, routed);
      response = result ? std::move(*result) : http::ErrorResponse(result.error());
    }
    const std::string_view pattern = choice.pattern.empty() ? "unknown" : choice.pattern;
    api.metrics.HttpRequest(pattern, request.method, response.status,
                            SecondsBetween(start, Clock::now()));
    return response;
  };
}

}  // namespace gantry::api
