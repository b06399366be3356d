#include "sidecar/app/pod_standing.h"

#include <linux/capability.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>

#include "lib/base/log.h"
#include "sidecar/transport/rdma/verbs/verbs_error.h"

namespace gantry {
namespace {

// Lifts RLIMIT_MEMLOCK.
bool HasIpcLock() {
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3> sets = {};
  if (::syscall(SYS_capget, &header, sets.data()) != 0) return false;
  return (sets[CAP_TO_INDEX(CAP_IPC_LOCK)].effective & CAP_TO_MASK(CAP_IPC_LOCK)) != 0;
}

pod::SlotNeeds NeedsOf(const SidecarConfig& config) {
  pod::SlotNeeds needs;
  needs.slot = config.require_slot;
  needs.node_dir = config.node_dir;
  needs.gpus = config.gpu_workers != 0;
  needs.rdma = !config.no_rdma;
  if (!HasIpcLock()) needs.locked_bytes_max = transport::LockedBytesMax();
  needs.locked_bytes_min = transport::kLockedBytesSmall;
  return needs;
}

}  // namespace

PodStanding ExaminePod(const SidecarConfig& config) {
  PodStanding standing;
  standing.pod = pod::ReadPodConfig();
  standing.findings = pod::CheckSlot(standing.pod, NeedsOf(config));
  for (const pod::Finding& finding : standing.findings) {
    const auto say = finding.level == pod::FindingLevel::kFatal ? log::Error : log::Warning;
    say("what the pod was given is not right", {{"level", pod::NameOf(finding.level)},
                                                {"subject", finding.subject},
                                                {"said", finding.said},
                                                {"advice", finding.advice}});
  }
  return standing;
}

}  // namespace gantry
