// Which pod this is, as Kubernetes' downward API says, and what the device plugin gave its
// container: both are in the environment. A plain value.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace gantry::pod {

struct Slot {
  std::string id;  // "slot-003"
  // Whose it is; empty where the plugin cannot know (`--binding allocate`).
  std::string pod;
  std::string pod_namespace;
  std::string container;
  std::vector<std::string> gpus;
  std::vector<std::string> peer_gpus;
  std::vector<std::string> rdma_devices;
};

struct PodConfig {
  // Empty: its template does not say.
  std::string name;
  std::string pod_namespace;
  std::optional<Slot> slot;
};

// Variables that its template sets by `fieldRef`.
inline constexpr char kPodNameVariable[] = "GANTRY_POD_NAME";
inline constexpr char kPodNamespaceVariable[] = "GANTRY_POD_NAMESPACE";

PodConfig ReadPodConfig();

}  // namespace gantry::pod
