#include "sidecar/pod/slot_check.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "lib/gpu/all_cluster_gpus.h"
#include "lib/topology/sysfs_devices.h"
#include "lib/wire/slot_variables.h"
#include "sidecar/pod/mounted_folder.h"

namespace gantry::pod {
namespace {

constexpr std::string_view kRemoved = "//deleted";  // of the source of a mount, proc(5)

std::string User() { return "user " + std::to_string(::geteuid()); }

Finding Warning(std::string subject, std::string said, std::string advice) {
  return {FindingLevel::kWarning, std::move(subject), std::move(said), std::move(advice)};
}
Finding Fatal(std::string subject, std::string said, std::string advice) {
  return {FindingLevel::kFatal, std::move(subject), std::move(said), std::move(advice)};
}

// 0, or the error of opening it for reading and writing. Asked for and not done: some devices wake
// up when they are opened.
int ErrorOfOpening(const std::string& path) {
  return ::faccessat(AT_FDCWD, path.c_str(), R_OK | W_OK, AT_EACCESS) == 0 ? 0 : errno;
}

std::string Message(int error_number) { return std::generic_category().message(error_number); }

Findings WithoutSlot(const PodConfig& pod, const SlotNeeds& needs) {
  const bool looks_like_one = !pod.name.empty() && needs.node_dir == wire::kPeerFolderInContainer;
  if (!needs.slot && !looks_like_one) return {};
  const std::string why =
      "the device plugin gave this container no slot (" + std::string(wire::kSlotVariable) +
      " is not set): it has neither its pod's GPUs nor RDMA devices nor the folder of its peers";
  const std::string advice =
      "let the container of the sidecar, and not another one of the pod, ask for "
      "gantry.dev/transfer: "
      "1 under resources.limits; when it does, see with `kubectl describe node` whether the plugin "
      "offers that, and look at the plugin's log. Leave out --require-slot where none is meant";
  if (needs.slot) return {Fatal("slot", why, advice)};
  return {Warning("slot", why, advice)};
}

// Nothing: it is this pod's, as far as can be known.
std::optional<Finding> CheckOwner(const PodConfig& pod, const Slot& slot) {
  if (slot.pod.empty()) return {};  // given to whoever asks
  const std::string owner = slot.pod_namespace + "/" + slot.pod;
  if (pod.name.empty() || pod.pod_namespace.empty()) {
    return Warning(
        "slot",
        slot.id + " is bound to the pod " + owner + ", and whether this is it is unknown: " +
            (pod.name.empty() ? kPodNameVariable : kPodNamespaceVariable) + " is not set",
        "set GANTRY_POD_NAME and GANTRY_POD_NAMESPACE by fieldRef from metadata.name and "
        "metadata.namespace, as the templates of the chart gantry-lib do");
  }
  if (pod.name == slot.pod && pod.pod_namespace == slot.pod_namespace) return {};
  return Fatal(
      "slot",
      slot.id + " is bound to the pod " + owner + ", and this is " + pod.pod_namespace + "/" +
          pod.name + ": its devices and its folder of peers are a neighbour's",
      "nothing, when the container starts anew with a slot of its own; else delete the pod, "
      "and look in the device plugin's log for why the CDI spec of " +
          slot.id + " is an old one, or for a second writer in its --cdi-dir");
}

void CheckPeerFolder(const Slot& slot, const SlotNeeds& needs, const std::string& root,
                     Findings& findings) {
  const std::string subject = "peer folder";
  const std::string folder(wire::kPeerFolderInContainer);
  if (needs.node_dir.empty()) {
    findings.push_back(Warning(subject,
                               "the slot has " + folder +
                                   ", and --node-dir is not given: the peers on this node are "
                                   "reached over TCP alone",
                               "give the sidecar --node-dir=" + folder));
    return;
  }
  if (needs.node_dir != folder) return;  // of the operator's own
  const auto source = SourceOfMount(folder, root);
  if (!source) {
    findings.push_back(Warning(subject,
                               folder + " is not mounted: no peer on this node finds this sidecar",
                               "let no other volume be mounted there, and look whether the "
                               "container's runtime applies the mounts of CDI specs"));
    return;
  }
  if (source->ends_with(kRemoved)) {
    findings.push_back(Warning(
        subject,
        folder + " is " + *source + " of the node: pods that start from now on have another one",
        "delete the pod: the next one has the folder that is there"));
    return;
  }
  const std::string name = std::filesystem::path(*source).filename();
  if (!slot.pod_namespace.empty() && name != slot.pod_namespace) {
    findings.push_back(Fatal(subject,
                             folder + " is " + *source + " of the node, and the namespace is " +
                                 slot.pod_namespace + ": those who meet there are other tenants",
                             "let no other volume be mounted there; else look at --peer-dir of the "
                             "device plugin"));
    return;
  }
  const std::string here = root == "/" ? folder : root + folder;
  if (::faccessat(AT_FDCWD, here.c_str(), W_OK | X_OK, AT_EACCESS) == 0) return;
  findings.push_back(Fatal(subject,
                           User() + " may make no sockets in " + folder + ": " + Message(errno),
                           "the device plugin makes it with mode 1777, and mounts it for writing: "
                           "look at " +
                               *source + " on the node, and for SELinux in the node's audit log"));
}

void CheckGpus(const Slot& slot, const std::string& root, Findings& findings) {
  if (slot.gpus.empty() && !slot.pod.empty()) {
    findings.push_back(
        Warning("GPUs",
                "no other container of the pod has a GPU that can be shared with the "
                "sidecar: memory of GPUs cannot be registered",
                "let the workload's container ask for whole GPUs, or say that none are "
                "meant by --gpu-workers=0"));
  }
  std::vector<gpu::NodeGpu> there;
  for (const auto& vendor : gpu::AllClusterGpus()) {
    for (gpu::NodeGpu& each : vendor->List(root)) there.push_back(std::move(each));
  }
  std::vector<std::string> given = slot.gpus;
  given.insert(given.end(), slot.peer_gpus.begin(), slot.peer_gpus.end());
  for (const std::string& id : given) {
    const auto found = std::find_if(there.begin(), there.end(),
                                    [&](const gpu::NodeGpu& each) { return each.id == id; });
    const std::string subject = "GPU " + id;
    if (found == there.end()) {
      findings.push_back(
          Warning(subject,
                  "it was given to the slot, and its driver does not show it in this "
                  "container",
                  "look with the vendor's tool on the node whether the GPU is well, "
                  "then start the pod anew"));
      continue;
    }
    const int error = ErrorOfOpening(root == "/" ? found->device_file : root + found->device_file);
    if (error == 0) continue;
    const std::string cannot =
        User() + " cannot open " + found->device_file + ": " + Message(error);
    findings.push_back(
        error == ENOENT
            ? Warning(subject, "it was given to the slot, and " + cannot,
                      "write the CDI specs of the GPU's vendor on the node, which the device "
                      "plugin copies, or run the pod with the vendor's runtimeClassName")
            : Warning(subject, "it was given to the slot, and " + cannot,
                      "give the user of the sidecar the group of that file by supplementalGroups, "
                      "or the file mode 0666 on the node"));
  }
}

void CheckRdma(const Slot& slot, const SlotNeeds& needs, const std::string& root,
               Findings& findings) {
  const std::vector<topology::RdmaDevice> there = topology::ListRdmaDevices(root);
  for (const std::string& name : slot.rdma_devices) {
    const std::string subject = "RDMA " + name;
    const auto found = std::find_if(there.begin(), there.end(),
                                    [&](const auto& each) { return each.name == name; });
    if (found == there.end()) {
      findings.push_back(Warning(
          subject, "it was given to the slot, and it is not in the network namespace of this pod",
          "set the node's devices to be shared (rdma system set netns shared), or give the pod "
          "hostNetwork, or leave it out by --rdma-exclude of the device plugin"));
      continue;
    }
    if (found->device_file.empty()) {
      findings.push_back(Warning(subject, "programs have no device file for it",
                                 "load the module ib_uverbs on the node"));
      continue;
    }
    const std::string& file = found->device_file;
    if (const int error = ErrorOfOpening(root == "/" ? file : root + file); error != 0) {
      findings.push_back(
          Warning(subject,
                  "it was given to the slot, and " + User() + " cannot open " + file + ": " +
                      Message(error),
                  "look at the slot's CDI spec on the node and at the mode of the file there"));
    }
  }
  if (!slot.rdma_devices.empty() && needs.locked_bytes_max &&
      *needs.locked_bytes_max < needs.locked_bytes_min) {
    findings.push_back(
        Warning("locked memory",
                "this process may lock " + std::to_string(*needs.locked_bytes_max) +
                    " bytes: no more memory than that can be registered on the slot's RDMA devices",
                "set LimitMEMLOCK=infinity in the unit of the container's runtime, or let its NRI "
                "plugin ulimit-adjuster raise it for the sidecar; --no-rdma goes without"));
  }
}

}  // namespace

std::string_view NameOf(FindingLevel level) {
  return level == FindingLevel::kFatal ? "fatal" : "warning";
}

Findings CheckSlot(const PodConfig& pod, const SlotNeeds& needs, const std::string& root) {
  if (!pod.slot) return WithoutSlot(pod, needs);
  Findings findings;
  if (auto owner = CheckOwner(pod, *pod.slot)) findings.push_back(*std::move(owner));
  if (AnyFatal(findings)) return findings;
  CheckPeerFolder(*pod.slot, needs, root, findings);
  if (needs.gpus) CheckGpus(*pod.slot, root, findings);
  if (needs.rdma) CheckRdma(*pod.slot, needs, root, findings);
  return findings;
}

bool AnyFatal(const Findings& findings) {
  return std::any_of(findings.begin(), findings.end(),
                     [](const Finding& finding) { return finding.level == FindingLevel::kFatal; });
}

std::string FatalText(const Findings& findings) {
  std::string text;
  for (const Finding& finding : findings) {
    if (finding.level != FindingLevel::kFatal) continue;
    text +=
        (text.empty() ? "" : "\n") + finding.subject + ": " + finding.said + ". " + finding.advice;
  }
  return text;
}

}  // namespace gantry::pod
