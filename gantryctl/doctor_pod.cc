// The pod of a running sidecar, and what it found about the slot that it was given.
#include <nlohmann/json.hpp>
#include <string>

#include "gantryctl/doctor.h"
#include "gantryctl/json_field.h"

namespace gantry::gantryctl {
namespace {

std::string Joined(const nlohmann::json& list) {
  std::string text;
  for (const nlohmann::json& each : list) {
    if (each.is_string()) text += (text.empty() ? "" : ", ") + each.get<std::string>();
  }
  return text.empty() ? "none" : text;
}

}  // namespace

Findings ExaminePod(const nlohmann::json& status) {
  Findings findings;
  const nlohmann::json& pod = MemberOf(status, "pod");
  const nlohmann::json& slot = MemberOf(pod, "slot");
  const std::string name = TextOf(pod, "namespace", "?") + "/" + TextOf(pod, "name", "?");
  if (slot.is_object()) {
    findings.push_back({Level::kOk, "pod",
                        name + " has " + TextOf(slot, "id") + ": GPUs " +
                            Joined(MemberOf(slot, "gpus")) + "; of peers " +
                            Joined(MemberOf(slot, "peer_gpus")) + "; RDMA devices " +
                            Joined(MemberOf(slot, "rdma_devices")),
                        ""});
  } else if (!TextOf(pod, "name").empty()) {
    findings.push_back({Level::kOk, "pod", name + " has no slot of the device plugin", ""});
  }
  for (const nlohmann::json& finding : MemberOf(pod, "findings")) {
    const bool fatal = TextOf(finding, "level") == "fatal";
    findings.push_back({fatal ? Level::kFail : Level::kWarn, "pod: " + TextOf(finding, "subject"),
                        TextOf(finding, "said"), TextOf(finding, "advice")});
  }
  return findings;
}

}  // namespace gantry::gantryctl
