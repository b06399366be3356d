#include "deviceplugin/slot_plan.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "lib/base/log.h"
#include "lib/topology/sysfs_devices.h"
#include "lib/wire/slot_variables.h"

namespace gantry::deviceplugin {
namespace {

constexpr size_t kNamespaceLengthMax = 63;  // of a DNS label

std::string Joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ",") + name;
  return text;
}

// It becomes the name of a folder.
Status CheckNamespace(const std::string& name) {
  constexpr std::string_view kAllowed = "abcdefghijklmnopqrstuvwxyz0123456789-";
  if (!name.empty() && name.size() <= kNamespaceLengthMax &&
      name.find_first_not_of(kAllowed) == std::string::npos) {
    return {};
  }
  return Fail(ErrorCode::kInvalidArgument, "'" + name + "' is no name of a namespace");
}

// Of the pod's containers but the one that has the slot: what that one asked for itself, it has.
Result<std::vector<GpuName>> GpusOfSiblings(const SlotOwner& owner) {
  std::vector<GpuName> gpus;
  for (const ContainerDevices& container : owner.pod->containers) {
    if (&container == owner.container) continue;
    ASSIGN_OR_RETURN(const std::vector<GpuName> more, GpusOf(container));
    gpus.insert(gpus.end(), more.begin(), more.end());
  }
  return gpus;
}

// Of the pods of this namespace that have a sidecar, too, and exist by now.
std::vector<GpuName> GpusOfPeers(const SlotPlanRules& rules, const std::vector<PodDevices>& pods,
                                 const PodDevices& self) {
  std::vector<GpuName> gpus;
  for (const PodDevices& pod : pods) {
    if (&pod == &self || pod.pod_namespace != self.pod_namespace) continue;
    const bool has_sidecar =
        std::any_of(pod.containers.begin(), pod.containers.end(),
                    [&](const auto& container) { return container.HasAnyOf(rules.resource); });
    if (!has_sidecar) continue;
    for (const ContainerDevices& container : pod.containers) {
      const auto more = GpusOf(container);
      if (!more) {
        log::Warning(
            "the GPUs of a peer are not granted",
            {{"namespace", pod.pod_namespace}, {"pod", pod.name}, {"error", more.error()}});
        continue;
      }
      gpus.insert(gpus.end(), more->begin(), more->end());
    }
  }
  return gpus;
}

bool Exists(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

void AddRdma(const SlotPlanRules& rules, const NodeGpus& node,
             const std::vector<std::string>& gpu_addresses, SlotPlan* plan) {
  if (rules.no_rdma) {
    plan->rdma_reason = "switched off by --no-rdma";
    return;
  }
  const auto devices = topology::ListRdmaDevices(rules.root);
  const topology::NicChooser chooser(devices, node.PciAddresses(), rules.nics, rules.root);
  std::vector<Result<topology::NicChoice>> choices;
  choices.reserve(gpu_addresses.size());
  for (const std::string& address : gpu_addresses) choices.push_back(chooser.ForGpu(address));
  if (choices.empty()) choices.push_back(chooser.ForHostMemory(-1));
  for (const auto& choice : choices) {
    plan->rdma_reason += (plan->rdma_reason.empty() ? "" : "; ") +
                         (choice ? choice->reason : choice.error().message);
    if (!choice) continue;
    for (const std::string& name : choice->names) {
      auto& names = plan->rdma_devices;
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
  }
  for (const topology::RdmaDevice& device : devices) {
    const auto& names = plan->rdma_devices;
    if (std::find(names.begin(), names.end(), device.name) != names.end() &&
        !device.device_file.empty()) {
      plan->edits.AddDeviceFile(device.device_file);
    }
  }
  if (!plan->rdma_devices.empty() && Exists(rules.root + "/sys/class/misc/rdma_cm")) {
    plan->edits.AddDeviceFile("/dev/infiniband/rdma_cm");
  }
}

// Everything but what tells whose slot it is.
Result<SlotPlan> PlanDevices(const SlotPlanRules& rules, const NodeGpus& node,
                             const std::vector<GpuName>& own, const std::vector<GpuName>& others,
                             std::string_view slot) {
  ASSIGN_OR_RETURN(GpuGrant grant, node.Grant(own, others));
  SlotPlan plan;
  plan.gpus = std::move(grant.ids);
  plan.peer_gpus = std::move(grant.other_ids);
  plan.cdi_version = std::move(grant.cdi_version);
  plan.edits = std::move(grant.edits);
  AddRdma(rules, node, grant.pci_addresses, &plan);
  plan.edits.AddVariable(wire::kSlotVariable, slot);
  plan.edits.AddVariable(wire::kSlotGpusVariable, Joined(plan.gpus));
  plan.edits.AddVariable(wire::kSlotPeerGpusVariable, Joined(plan.peer_gpus));
  plan.edits.AddVariable(wire::kSlotRdmaVariable, Joined(plan.rdma_devices));
  return plan;
}

// Whether the slot is bound without GPUs after this.
bool GoesWithout(const SlotPlanRules& rules, const PodDevices& pod, const Error& error) {
  if (rules.missing_gpu == MissingGpu::kFail || error.code != ErrorCode::kNotExportable) {
    return false;
  }
  log::Warning("a pod's GPUs cannot be shared with its sidecar, which goes without",
               {{"namespace", pod.pod_namespace}, {"pod", pod.name}, {"error", error}});
  return true;
}

}  // namespace

Result<SlotPlan> PlanSlot(const SlotPlanRules& rules, const std::vector<PodDevices>& pods,
                          std::string_view slot, const SlotOwner& owner) {
  const PodDevices& pod = *owner.pod;
  RETURN_IF_ERROR(CheckNamespace(pod.pod_namespace));
  std::vector<GpuName> own;
  auto siblings = GpusOfSiblings(owner);
  if (siblings) {
    own = *std::move(siblings);
  } else if (!GoesWithout(rules, pod, siblings.error())) {
    return Fail(std::move(siblings).error());
  }
  if (own.empty() && rules.missing_gpu == MissingGpu::kFail) {
    return Fail(ErrorCode::kPathUnavailable,
                "no container of the pod " + pod.pod_namespace + "/" + pod.name + " has a GPU",
                "give the workload's container a GPU, or set --missing-gpu=rdmaOnly");
  }
  const NodeGpus node = NodeGpus::Detect(rules.cdi_spec_folders, rules.root);
  std::vector<GpuName> others;
  if (!own.empty() && rules.peer_gpus == PeerGpuVisibility::kNamespace) {
    others = GpusOfPeers(rules, pods, pod);
  } else if (!own.empty() && rules.peer_gpus == PeerGpuVisibility::kNode) {
    others = node.All();
  }
  auto planned = PlanDevices(rules, node, own, others, slot);
  if (!planned && GoesWithout(rules, pod, planned.error())) {
    planned = PlanDevices(rules, node, {}, {}, slot);
  }
  ASSIGN_OR_RETURN(SlotPlan plan, std::move(planned));
  plan.pod_namespace = pod.pod_namespace;
  plan.pod = pod.name;
  plan.container = owner.container->name;
  plan.edits.AddVariable(wire::kSlotNamespaceVariable, plan.pod_namespace);
  plan.edits.AddVariable(wire::kSlotPodVariable, plan.pod);
  plan.edits.AddVariable(wire::kSlotContainerVariable, plan.container);
  plan.peer_folder = rules.peer_folder + "/" + plan.pod_namespace;
  plan.edits.AddMount(plan.peer_folder, wire::kPeerFolderInContainer);
  return plan;
}

Result<SlotPlan> PlanForAnyPod(const SlotPlanRules& rules, std::string_view slot) {
  const NodeGpus node = NodeGpus::Detect({}, rules.root);  // no CDI is at hand
  ASSIGN_OR_RETURN(SlotPlan plan, PlanDevices(rules, node, node.All(), {}, slot));
  plan.peer_folder = rules.peer_folder;
  plan.edits.AddMount(plan.peer_folder, wire::kPeerFolderInContainer);
  return plan;
}

}  // namespace gantry::deviceplugin
