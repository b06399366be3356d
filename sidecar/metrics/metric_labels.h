// The closed sets of label values. Other values count as "other" or not at all, so no caller can
// create new series. Thread-safe.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string_view>

#include "lib/base/error.h"

namespace gantry::metrics {

// In the order of the enumerations in metrics.h.
inline constexpr std::array<std::string_view, 5> kOutcomeNames = {
    "succeeded", "failed", "cancelled", "expired", "rejected"};
inline constexpr std::array<std::string_view, 5> kStageNames = {"admit", "fence", "queue", "move",
                                                                "quiesce"};

// The means of GPU copies and its reason, in the order of transport::GpuCopyReason.
struct GpuJobKind {
  std::string_view plan;
  std::string_view reason;
};
inline constexpr std::array<GpuJobKind, 10> kGpuJobKinds = {{{"engines", "asked"},
                                                             {"engines", "few_blocks"},
                                                             {"engines", "well_fed"},
                                                             {"engines", "no_kernels"},
                                                             {"engines", "busy"},
                                                             {"engines", "no_peer_access"},
                                                             {"engines", "with_host"},
                                                             {"kernel", "asked"},
                                                             {"kernel", "idle"},
                                                             {"kernel", "probe"}}};
inline constexpr std::array<std::string_view, 3> kChunkOutcomeNames = {"succeeded", "failed",
                                                                       "retried"};
inline constexpr std::array<std::string_view, 2> kDescriptorStageNames = {"submitted", "merged"};
inline constexpr std::array<std::string_view, 2> kSuccessNames = {"succeeded", "failed"};
inline constexpr std::array<std::string_view, 5> kWorkloadEndNames = {"detached", "died", "expired",
                                                                      "deleted", "other"};
inline constexpr std::array<std::string_view, 3> kStatusClassNames = {"2xx", "4xx", "5xx"};

// Values of metric_reason in lib/base/error.cc, for forbidden memory accesses and for failures of a
// path during a transfer.
inline constexpr std::array<std::string_view, 8> kAccessReasonNames = {
    "unregistered", "out_of_range",   "stale_generation", "draining",
    "permission",   "not_exportable", "device_error",     "lease_expired"};
inline constexpr std::array<std::string_view, 7> kTransportReasonNames = {
    "timeout",          "disconnect",  "peer_unavailable", "version_mismatch",
    "path_unavailable", "worker_lost", "internal"};

// Values of metric_reason for stale descriptions of remote buffers.
inline constexpr std::array<std::string_view, 5> kRetryReasonNames = {
    "stale_generation", "draining", "unregistered", "path_unavailable", "disconnect"};

// The names of wire::Operation, and those of wire::Path with "none" behind them.
std::span<const std::string_view> OperationNames();
std::span<const std::string_view> PathNamesAndNone();

// Index into kAccessReasonNames; nothing when the code is no access error.
std::optional<size_t> AccessReasonOf(ErrorCode code);
// Index into kTransportReasonNames ("internal" for unexpected codes). Nothing for access errors,
// cancellations and invalid requests.
std::optional<size_t> TransportReasonOf(ErrorCode code);

// Routes of the REST interface as docs/rest_api.yaml writes them; the last one is "other".
struct HttpEndpoint {
  std::string_view route;
  std::string_view method;
};
std::span<const HttpEndpoint> HttpEndpoints();
std::span<const std::string_view> HttpRoutes();
// Return the index of "other" for unknown values.
size_t EndpointIndex(std::string_view route, std::string_view method);
size_t RouteIndex(std::string_view route);

// Returns the index of `name`, or the last index when it is not in the set.
size_t IndexOrLast(std::span<const std::string_view> set, std::string_view name);

}  // namespace gantry::metrics
