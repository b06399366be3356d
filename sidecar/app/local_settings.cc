// Settings of the sidecar by itself: its name, its directories, its listeners and its process.
#include "sidecar/app/settings.h"

namespace gantry::settings {
namespace {

using enum Level;
using Config = SidecarConfig;

constexpr Setting kNames[] = {
    {"--name", &Config::name, kNormal, kUnbounded,
     "Name of this sidecar, unique in its node directory. Peers and the log show it.",
     "the host name"},
    {"--run-dir", &Config::run_dir, kNormal, kUnbounded,
     "Directory of api.sock and handoff.sock, which the pod's containers share. The sidecar makes "
     "it with mode 0750."},
    {"--node-dir", &Config::node_dir, kNormal, kUnbounded,
     "Directory of the peer sockets, which the sidecars of one node and one trust domain share.",
     "none, and there are no peers on the node"},
    {"--node-uids", &Config::node_uids, kNormal, kUnbounded,
     "Users whose sidecars in the node directory are peers: numbers and ranges with commas between "
     "(65532,1000680000-1000689999). Root and this sidecar's user always are.",
     "no others"},
};

constexpr Setting kListeners[] = {
    {"--rest-listen", &Config::rest_listen, kNormal, kUnbounded,
     "Loopback address:port for REST, for clients that cannot use the Unix socket.", "none"},
    {"--metrics-listen", &Config::metrics_listen, kNormal, kUnbounded,
     "The address:port that serves /metrics alone, for Prometheus. [::]:port is IPv6 and IPv4.",
     "none"},
    {"--health-listen", &Config::health_listen, kNormal, kUnbounded,
     "The address:port that serves grpc.health.v1 alone, in plaintext, for probes of Kubernetes.",
     "none"},
};

constexpr std::string_view kLogLevels[] = {"debug", "info", "warning", "error"};

constexpr Setting kProcess[] = {
    {"--log-level", &Config::log_level, kNormal, Words(kLogLevels),
     "The log on standard error has lines of this level and above."},
    {"--require-slot", &Config::require_slot, kNormal, kUnbounded,
     "End at the start, with status 2, without a slot of the device plugin. Set it for pods that "
     "ask for one."},
    {"--termination-log", &Config::termination_log, kNormal, kUnbounded,
     "File for why the process ends, where Kubernetes reads it. It is written only if it is there; "
     "an empty name means none."},
    {"--shutdown-ms", &Config::shutdown_ms, kNormal, kTime,
     "Milliseconds from SIGTERM until the process ends by force. Keep the pod's grace period "
     "longer."},
};

constexpr Group kLocalGroups[] = {
    {"Names and directories", kNames}, {"Listeners", kListeners}, {"Process", kProcess}};

}  // namespace

std::span<const Group> LocalSettings() { return kLocalGroups; }

}  // namespace gantry::settings
