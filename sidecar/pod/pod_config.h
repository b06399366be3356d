// The identity of this pod from Kubernetes' downward API, and the devices that the device plugin
// assigned. Both come from the environment. A plain value.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace gantry::pod {

struct Slot {
  std::string id;  // "slot-003"
  // The pod that owns the slot; empty where the plugin cannot know it (`--binding allocate`).
  std::string pod;
  std::string pod_namespace;
  std::string container;
  std::vector<std::string> gpus;
  std::vector<std::string> peer_gpus;
  std::vector<std::string> rdma_devices;
};

struct PodConfig {
  // Empty: the pod's template does not set it.
  std::string name;
  std::string pod_namespace;
  std::optional<Slot> slot;
};

// Environment variables that the pod's template sets by `fieldRef`.
inline constexpr char kPodNameVariable[] = "GANTRY_POD_NAME";
inline constexpr char kPodNamespaceVariable[] = "GANTRY_POD_NAMESPACE";

PodConfig ReadPodConfig();

}  // namespace gantry::pod
