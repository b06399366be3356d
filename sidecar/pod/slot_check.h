// Compares what the device plugin put into this container with what Kubernetes says of the pod and
// with what is there. Stateless; thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sidecar/pod/pod_config.h"

namespace gantry::pod {

enum class FindingLevel {
  kWarning,  // the sidecar runs, without what is named
  kFatal,    // it must not: it would touch what is another pod's, or lacks what it was told to have
};
std::string_view NameOf(FindingLevel level);

struct Finding {
  FindingLevel level = FindingLevel::kWarning;
  std::string subject;  // "slot", "peer folder", "GPU <id>"
  std::string said;     // what is wrong, and why
  std::string advice;   // what to do about it
};
using Findings = std::vector<Finding>;

// What the sidecar's settings make of a slot.
struct SlotNeeds {
  bool slot = false;     // it has to have one
  std::string node_dir;  // empty: it meets no peers on the node
  bool gpus = true;
  bool rdma = true;
  std::optional<uint64_t> locked_bytes_max;  // nothing: there is no limit
  uint64_t locked_bytes_min = 0;             // less is too little for RDMA
};

// In the order of the containers' life; a slot of another pod is the only finding then. `root` is
// "/" but for tests.
Findings CheckSlot(const PodConfig& pod, const SlotNeeds& needs, const std::string& root = "/");

bool AnyFatal(const Findings& findings);
// A sentence for each that ends the sidecar, with what to do.
std::string FatalText(const Findings& findings);

}  // namespace gantry::pod
