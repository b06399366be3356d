// The values that labels can take. Closed sets: what is not here is counted as "other" or not at
// all, so that no caller can make new series. Thread-safe.
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

// What copied memory of GPUs, and why that: in the order of transport::GpuCopyReason.
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

// metric_reasons of the error table (lib/base/error.cc): memory that may not be touched, and ways
// that failed under a transfer.
inline constexpr std::array<std::string_view, 8> kAccessReasonNames = {
    "unregistered", "out_of_range",   "stale_generation", "draining",
    "permission",   "not_exportable", "device_error",     "lease_expired"};
inline constexpr std::array<std::string_view, 7> kTransportReasonNames = {
    "timeout",          "disconnect",  "peer_unavailable", "version_mismatch",
    "path_unavailable", "worker_lost", "internal"};

// Likewise: why a description of a remote buffer was stale.
inline constexpr std::array<std::string_view, 5> kRetryReasonNames = {
    "stale_generation", "draining", "unregistered", "path_unavailable", "disconnect"};

// The names of wire::Operation, and those of wire::Path with "none" behind them.
std::span<const std::string_view> OperationNames();
std::span<const std::string_view> PathNamesAndNone();

// Index into kAccessReasonNames; none when the code is no access error.
std::optional<size_t> AccessReasonOf(ErrorCode code);
// Index into kTransportReasonNames ("internal" for what should not happen); none for access errors,
// for cancelled ones and for mistakes of the caller.
std::optional<size_t> TransportReasonOf(ErrorCode code);

// The REST interface's routes as docs/rest_api.yaml writes them, with "other" as the last one.
struct HttpEndpoint {
  std::string_view route;
  std::string_view method;
};
std::span<const HttpEndpoint> HttpEndpoints();
std::span<const std::string_view> HttpRoutes();
// Indices; of "other" for what is not in the lists.
size_t EndpointIndex(std::string_view route, std::string_view method);
size_t RouteIndex(std::string_view route);

// Index of `name`, or of the last value when it is not in the set.
size_t IndexOrLast(std::span<const std::string_view> set, std::string_view name);

}  // namespace gantry::metrics
