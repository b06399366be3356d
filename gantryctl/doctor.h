// `gantryctl doctor`: what works on this machine, why the rest does not, and what to do about it.
// Used by one thread.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "gantryctl/command_line.h"

namespace gantry::gantryctl {

enum class Level { kOk, kWarn, kFail };

struct Finding {
  Level level = Level::kOk;
  std::string subject;  // "kernel"
  std::string said;     // what was found
  std::string advice;   // what to do; empty when there is nothing to do
};
using Findings = std::vector<Finding>;

// Of this machine and this process's limits, in the order in which they are shown.
Findings ExamineHost();
// RDMA devices, and the limit and the kernel's options that matter to them.
Findings ExamineRdma(const std::string& root = "/");
Findings ExamineDevices(const std::string& root = "/");
Findings ExamineGpuFiles(const std::string& root = "/");
// Of the RDMA devices in a sidecar's status.
Findings ExamineRdmaInUse(const nlohmann::json& status);
// Of the GPUs and workers in a sidecar's status.
Findings ExamineGpus(const nlohmann::json& status);
// Of the pod and its slot in a sidecar's status.
Findings ExaminePod(const nlohmann::json& status);
// Of the sidecar at the socket, and of the socket's folder.
Findings ExamineSidecar(const CommandLine& line);

std::string FindingsText(const Findings& findings);
bool AnyFails(const Findings& findings);

int RunDoctor(const CommandLine& line);

}  // namespace gantry::gantryctl
