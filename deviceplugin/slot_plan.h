// What the container of one slot is to be given, decided from which devices the pods of the node
// have: its siblings' GPUs, those of its peers, RDMA devices near them. Immutable; thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "deviceplugin/cdi/container_edits.h"
#include "deviceplugin/gpu_grants.h"
#include "deviceplugin/pod_devices.h"
#include "lib/topology/nic_choice.h"

namespace gantry::deviceplugin {

enum class MissingGpu { kFail, kRdmaOnly };                 // of a pod that has none
enum class PeerGpuVisibility { kNone, kNamespace, kNode };  // GPUs of other pods

struct SlotPlanRules {
  std::string resource;  // "gantry.dev/transfer"
  MissingGpu missing_gpu = MissingGpu::kRdmaOnly;
  PeerGpuVisibility peer_gpus = PeerGpuVisibility::kNamespace;
  bool no_rdma = false;
  topology::NicRules nics;
  std::vector<std::string> cdi_spec_folders;
  std::string peer_folder;  // of the host; below it one for each namespace
  std::string root = "/";   // but for tests
};

struct SlotPlan {
  std::string pod_namespace;
  std::string pod;
  std::string container;
  std::vector<std::string> gpus;
  std::vector<std::string> peer_gpus;
  std::vector<std::string> rdma_devices;
  std::string rdma_reason;  // why these, or why none
  std::string peer_folder;  // of the host, that is mounted
  std::string cdi_version;
  ContainerEdits edits;
};

// Of the slot's owner among `pods`. kPathUnavailable: it has no GPU and must have one;
// kNotExportable, kNotFound: a GPU of it cannot be given to a second container.
Result<SlotPlan> PlanSlot(const SlotPlanRules& rules, const std::vector<PodDevices>& pods,
                          std::string_view slot, const SlotOwner& owner);

// For a node where it is not known which pod a slot is for: all GPUs, all RDMA devices and the one
// folder of peers.
Result<SlotPlan> PlanForAnyPod(const SlotPlanRules& rules, std::string_view slot);

}  // namespace gantry::deviceplugin
