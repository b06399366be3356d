#include "sidecar/metrics/metric_labels.h"

#include <algorithm>

#include "lib/codec/buffer_types.h"
#include "lib/wire/transfer_request.h"

namespace gantry::metrics {
namespace {

// Sorted by route: EndpointIndex and RouteIndex search by halving. "other" is the last one.
constexpr std::array kEndpoints = std::to_array<HttpEndpoint>({
    {"/healthz", "GET"},
    {"/metrics", "GET"},
    {"/openapi.yaml", "GET"},
    {"/readyz", "GET"},
    {"/v1/buffers", "GET"},
    {"/v1/buffers", "POST"},
    {"/v1/buffers/{id}", "DELETE"},
    {"/v1/buffers/{id}", "GET"},
    {"/v1/buffers:resolve", "POST"},
    {"/v1/buffers:resume", "POST"},
    {"/v1/buffers:suspend", "POST"},
    {"/v1/completions:poll", "POST"},
    {"/v1/debug/buffers", "GET"},
    {"/v1/debug/peers", "GET"},
    {"/v1/debug/transfers", "GET"},
    {"/v1/debug/workers", "GET"},
    {"/v1/events", "GET"},
    {"/v1/holds", "GET"},
    {"/v1/holds/{id}", "DELETE"},
    {"/v1/holds/{id}", "GET"},
    {"/v1/holds/{id}", "PATCH"},
    {"/v1/holds/{id}", "PUT"},
    {"/v1/info", "GET"},
    {"/v1/notifications", "POST"},
    {"/v1/peers", "GET"},
    {"/v1/peers/{name}", "DELETE"},
    {"/v1/peers/{name}", "GET"},
    {"/v1/peers/{name}", "PUT"},
    {"/v1/status", "GET"},
    {"/v1/transfers", "GET"},
    {"/v1/transfers", "POST"},
    {"/v1/transfers/{id}", "DELETE"},
    {"/v1/transfers/{id}", "GET"},
    {"/v1/views", "GET"},
    {"/v1/views", "POST"},
    {"/v1/views/{id}", "DELETE"},
    {"/v1/views/{id}", "GET"},
    {"/v1/workloads", "GET"},
    {"/v1/workloads/{name}", "DELETE"},
    {"/v1/workloads/{name}", "GET"},
    {"/v1/workloads/{name}", "PUT"},
    {"other", "other"},
});

constexpr bool Before(const HttpEndpoint& a, const HttpEndpoint& b) {
  return a.route != b.route ? a.route < b.route : a.method < b.method;
}
static_assert(std::is_sorted(kEndpoints.begin(), kEndpoints.end(), Before));

constexpr size_t CountRoutes() {
  size_t routes = 0;
  for (size_t i = 0; i < kEndpoints.size(); ++i) {
    if (i == 0 || kEndpoints[i].route != kEndpoints[i - 1].route) ++routes;
  }
  return routes;
}

constexpr auto kRoutes = [] {
  std::array<std::string_view, CountRoutes()> routes;
  size_t next = 0;
  for (size_t i = 0; i < kEndpoints.size(); ++i) {
    if (i == 0 || kEndpoints[i].route != kEndpoints[i - 1].route) {
      routes[next++] = kEndpoints[i].route;
    }
  }
  return routes;
}();

std::optional<size_t> Find(std::span<const std::string_view> set, std::string_view name) {
  const auto found = std::find(set.begin(), set.end(), name);
  if (found == set.end()) return std::nullopt;
  return static_cast<size_t>(found - set.begin());
}

}  // namespace

std::span<const std::string_view> OperationNames() {
  static const std::array names = {NameOf(wire::Operation::kRead), NameOf(wire::Operation::kWrite)};
  return names;
}

std::span<const std::string_view> PathNamesAndNone() {
  static const auto names = [] {
    std::array<std::string_view, wire::kPathCount + 1> all;
    std::transform(std::begin(wire::kPaths), std::end(wire::kPaths), all.begin(),
                   [](wire::Path path) { return NameOf(path); });
    all.back() = "none";
    return all;
  }();
  return names;
}

std::optional<size_t> AccessReasonOf(ErrorCode code) {
  return Find(kAccessReasonNames, InfoOf(code).metric_reason);
}

std::optional<size_t> TransportReasonOf(ErrorCode code) {
  const auto known = Find(kTransportReasonNames, InfoOf(code).metric_reason);
  if (known) return known;
  const bool unexpected =
      InfoOf(code).http_status >= 500 && !AccessReasonOf(code) && code != ErrorCode::kShuttingDown;
  if (!unexpected) return std::nullopt;
  return kTransportReasonNames.size() - 1;
}

std::span<const HttpEndpoint> HttpEndpoints() { return kEndpoints; }
std::span<const std::string_view> HttpRoutes() { return kRoutes; }

size_t EndpointIndex(std::string_view route, std::string_view method) {
  const HttpEndpoint wanted{route, method};
  const auto found = std::lower_bound(kEndpoints.begin(), kEndpoints.end(), wanted, Before);
  const bool exact = found != kEndpoints.end() && found->route == route && found->method == method;
  return exact ? static_cast<size_t>(found - kEndpoints.begin()) : kEndpoints.size() - 1;
}

size_t RouteIndex(std::string_view route) {
  const auto found = std::lower_bound(kRoutes.begin(), kRoutes.end(), route);
  const bool exact = found != kRoutes.end() && *found == route;
  return exact ? static_cast<size_t>(found - kRoutes.begin()) : kRoutes.size() - 1;
}

size_t IndexOrLast(std::span<const std::string_view> set, std::string_view name) {
  return Find(set, name).value_or(set.size() - 1);
}

}  // namespace gantry::metrics
