// Checks the device plugin's assignments against Kubernetes' facts about the pod and against the
// container's devices. Stateless; thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sidecar/pod/pod_config.h"

namespace gantry::pod {

enum class FindingLevel {
  kWarning,  // the sidecar runs without the subject
  kFatal,    // it must stop: it would use another pod's devices, or lacks assigned ones
};
std::string_view NameOf(FindingLevel level);

struct Finding {
  FindingLevel level = FindingLevel::kWarning;
  std::string subject;  // "slot", "peer folder", "GPU <id>"
  std::string said;     // the fault and its cause
  std::string advice;   // the remedy
};
using Findings = std::vector<Finding>;

// The sidecar's requirements, from its settings.
struct SlotNeeds {
  bool slot = false;     // a slot is required
  std::string node_dir;  // empty: no peers on the node
  bool gpus = true;
  bool rdma = true;
  std::optional<uint64_t> locked_bytes_max;  // nothing: unlimited
  uint64_t locked_bytes_min = 0;             // RDMA needs this much
};

// In the order of the containers' life. If the slot belongs to another pod, that is the only
// finding. `root` is "/" except in tests.
Findings CheckSlot(const PodConfig& pod, const SlotNeeds& needs, const std::string& root = "/");

bool AnyFatal(const Findings& findings);
// One sentence for each fatal finding, with its remedy.
std::string FatalText(const Findings& findings);

}  // namespace gantry::pod
