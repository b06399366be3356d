// GPUs: of this machine as far as its files tell, and as the workers of a running sidecar see them.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "gantryctl/doctor.h"
#include "gantryctl/json_field.h"
#include "gantryctl/size_text.h"
#include "lib/gpu/gpu_presence.h"

namespace gantry::gantryctl {
namespace {

Finding ExamineGpu(const nlohmann::json& gpu, bool some_ask_again) {
  const std::string subject = TextOf(gpu, "uuid");
  const uint64_t workers = CountOf(gpu, "workers");
  if (workers == 0) {
    return {Level::kWarn, subject, "no copy worker has a context on it",
            some_ask_again
                ? "copies use the other GPUs' workers until those that ask again have theirs"
                : "copies use the other GPUs' workers: raise --workers and --gpu-workers for more"};
  }
  return {Level::kOk, subject,
          std::to_string(workers) + " copy workers; " + FormatSize(CountOf(gpu, "free_bytes")) +
              " of " + FormatSize(CountOf(gpu, "bytes")) +
              " were free when they had their contexts",
          ""};
}

Finding ExamineWorker(const nlohmann::json& worker) {
  const std::string subject = "copy worker " + std::to_string(CountOf(worker, "index"));
  const std::string why = TextOf(worker, "no_gpu_because");
  if (FlagOf(worker, "asks_for_gpu")) {
    return {Level::kWarn, subject, "is without its GPU for now: " + why,
            "the worker asks again by itself: free memory of that GPU, e.g. by a lower memory "
            "share of the engine, or look at its driver where that is what is named"};
  }
  return {Level::kOk, subject, "copies memory of the host alone: " + why, ""};
}

bool Reaches(const nlohmann::json& gpu, const std::string& other) {
  const nlohmann::json& reaches = MemberOf(gpu, "reaches");
  return std::find(reaches.begin(), reaches.end(), nlohmann::json(other)) != reaches.end();
}

void ExaminePairs(const nlohmann::json& gpus, Findings& findings) {
  size_t direct = 0;
  const size_t before = findings.size();
  for (auto one = gpus.begin(); one != gpus.end(); ++one) {
    for (auto other = std::next(one); other != gpus.end(); ++other) {
      // Of one without workers nothing is known.
      const auto lacks = [](const nlohmann::json& from, const nlohmann::json& to) {
        return CountOf(from, "workers") > 0 && !Reaches(from, TextOf(to, "uuid"));
      };
      if (!lacks(*one, *other) && !lacks(*other, *one)) {
        ++direct;
        continue;
      }
      findings.push_back({Level::kWarn, "GPU pair",
                          TextOf(*one, "uuid") + " and " + TextOf(*other, "uuid") +
                              " have no access to each other's memory: copies between them go "
                              "through the host",
                          "look at the links between them, and at the IOMMU's and ACS settings"});
    }
  }
  if (direct > 0 && findings.size() == before) {
    findings.push_back({Level::kOk, "GPU pairs",
                        "all " + std::to_string(direct) + " reach each other's memory", ""});
  }
}

}  // namespace

Findings ExamineGpuFiles(const std::string& root) {
  Findings findings;
  for (const gpu::GpuPresence& found : gpu::FindGpus(root)) {
    if (found.device_files.empty()) continue;
    const std::string devices = std::to_string(found.device_files.size()) +
                                " GPU devices, the first " + found.device_files.front();
    if (!found.library_path.empty()) {
      findings.push_back({Level::kOk, "GPU driver", devices + "; " + found.library_path, ""});
      continue;
    }
    findings.push_back({Level::kWarn, "GPU driver",
                        devices + ", but no " + found.library + " is to be found here",
                        "ask for the driver's libraries in this container, too: the container "
                        "toolkit mounts them with the devices, or the image holds them"});
  }
  return findings;
}

Findings ExamineGpus(const nlohmann::json& status) {
  Findings findings;
  const nlohmann::json& gpus = MemberOf(status, "gpus");
  const nlohmann::json& workers = MemberOf(status, "workers");
  const bool some_ask_again =
      std::any_of(workers.begin(), workers.end(),
                  [](const nlohmann::json& worker) { return FlagOf(worker, "asks_for_gpu"); });
  for (const nlohmann::json& gpu : gpus) findings.push_back(ExamineGpu(gpu, some_ask_again));
  for (const nlohmann::json& worker : workers) {
    const bool says_why = !TextOf(worker, "no_gpu_because").empty();
    // Without any GPU the ipc path says why.
    if (says_why && (FlagOf(worker, "asks_for_gpu") || !gpus.empty())) {
      findings.push_back(ExamineWorker(worker));
    }
  }
  ExaminePairs(gpus, findings);
  if (const uint64_t conflicts = CountOf(status, "worker_pid_conflicts"); conflicts > 0) {
    findings.push_back({Level::kOk, "PIDs",
                        std::to_string(conflicts) +
                            " copy workers were replaced for having the PID of an owner of GPU "
                            "memory, each in its own namespace",
                        ""});
  }
  return findings;
}

}  // namespace gantry::gantryctl
