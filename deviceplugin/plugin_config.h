// Every setting of the device plugin: a flag, an environment variable (--cdi-dir is
// GANTRY_DP_CDI_DIR) and a default, read in this one place. A plain value.
#pragma once

#include <string>
#include <vector>

namespace gantry::deviceplugin {

struct PluginConfig {
  std::string resource = "gantry.dev/transfer";
  int slots = 64;
  std::string kubelet_dir = "/var/lib/kubelet/device-plugins";
  std::string pod_resources_dir = "/var/lib/kubelet/pod-resources";
  std::string cdi_dir = "/var/run/cdi";
  std::vector<std::string> cdi_spec_dirs = {"/etc/cdi", "/var/run/cdi"};
  std::string peer_dir = "/run/gantry/peers";
  std::string binding = "cdi";                    // or "allocate"
  std::string missing_gpu = "rdmaOnly";           // or "fail"
  std::string peer_gpu_visibility = "namespace";  // or "none", "node"
  bool no_rdma = false;
  bool require_rdma = false;
  std::vector<std::string> rdma_devices;
  std::vector<std::string> rdma_exclude;
  std::string instance;  // empty: random
  std::string metrics_listen;
  std::string health_listen;
  int settle_ms = 150;
  int reconcile_ms = 60'000;
  std::string log_level = "info";
  std::string host_root = "/";
  bool dry_run = false;
  bool print_config = false;
};

enum class ConfigOutcome { kRun, kExit };
struct ParsedPluginConfig {
  PluginConfig config;
  ConfigOutcome outcome = ConfigOutcome::kRun;
  int exit_code = 0;  // with kExit
};

// Writes help, version or the configuration to standard output, and usage errors to standard error.
ParsedPluginConfig ParsePluginConfig(int argc, const char* const* argv);

}  // namespace gantry::deviceplugin
