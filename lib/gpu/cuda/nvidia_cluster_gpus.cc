#include "lib/gpu/cuda/nvidia_cluster_gpus.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>

#include "lib/gpu/cuda/mig_slice.h"

namespace gantry::gpu {
namespace {

namespace fs = std::filesystem;

// Of the vendor's device plugin: whole GPUs, and the name of time-sliced ones. Its MIG resources
// (nvidia.com/mig-1g.10gb) are owned too, so that they are refused by name.
constexpr std::string_view kResource = "nvidia.com/gpu";
constexpr std::string_view kSharedResource = "nvidia.com/gpu.shared";
constexpr std::string_view kMigResources = "nvidia.com/mig-";
constexpr std::string_view kDriver = "gpu.nvidia.com";

// nvidia-ctk and nvidia-cdi-refresh write the first, the device plugin the second, the DRA driver
// the third.
constexpr std::array<std::string_view, 3> kCdiKinds = {
    "nvidia.com/gpu", "k8s.device-plugin.nvidia.com/gpu", "k8s.gpu.nvidia.com/device"};

constexpr std::array<std::string_view, 2> kSharedFiles = {"/dev/nvidiactl", "/dev/nvidia-uvm"};

// GKE's plugin names GPUs by their files ("nvidia0"), MIG slices as "nvidia0/gi1", and replicas of
// either as "nvidia0/vgpu3".
constexpr char kDevFolder[] = "/dev/";
constexpr std::string_view kGpuFiles = "/dev/nvidia";
constexpr std::string_view kGkeSlice = "/gi";
constexpr std::string_view kGkeReplica = "/vgpu";

constexpr std::string_view kUuidPrefix = "GPU-";
constexpr std::array<size_t, 5> kUuidGroups = {8, 4, 4, 4, 12};
constexpr std::string_view kDigits = "0123456789";
constexpr std::string_view kHexDigits = "0123456789abcdefABCDEF";

// Of MIG slices, as nvidia-container-toolkit writes them into specs, beside the whole GPU's file.
constexpr std::string_view kMigFiles = "/dev/nvidia-caps/nvidia-cap";

bool IsOf(std::string_view text, std::string_view letters) {
  return !text.empty() && text.find_first_not_of(letters) == std::string_view::npos;
}

// "GPU-8f1b9a6e-0c5d-4f3a-9b1e-2d7c6a5e4f3b" and nothing behind it.
bool IsUuid(std::string_view id) {
  if (!id.starts_with(kUuidPrefix)) return false;
  id.remove_prefix(kUuidPrefix.size());
  for (const size_t group : kUuidGroups) {
    if (id.size() < group || !IsOf(id.substr(0, group), kHexDigits)) return false;
    id.remove_prefix(group);
    const bool last = group == kUuidGroups.back();
    if (last) break;
    if (!id.starts_with('-')) return false;
    id.remove_prefix(1);
  }
  return id.empty();
}

// Without what distinguishes the replicas of a GPU that several containers take turns on:
// "<uuid>::<number>" by the vendor's plugin, "nvidia0/vgpu<number>" by GKE's.
std::string_view WithoutReplica(std::string_view id) {
  id = id.substr(0, id.find("::"));
  const size_t replica = id.rfind(kGkeReplica);
  const bool numbered =
      replica != std::string_view::npos && IsOf(id.substr(replica + kGkeReplica.size()), kDigits);
  return numbered ? id.substr(0, replica) : id;
}

// The value of "GPU UUID: \t GPU-..." and the like.
std::string ValueIn(const std::string& line, std::string_view key) {
  if (!line.starts_with(key)) return {};
  const size_t value = line.find_first_not_of(" \t", key.size());
  if (value == std::string::npos) return {};
  return line.substr(value, line.find_last_not_of(" \t\r") + 1 - value);
}

// As driver 580 writes it (seen on an H100): keys, a colon, blanks.
NodeGpu ReadInformation(const fs::path& file) {
  NodeGpu gpu;
  std::ifstream input(file);
  for (std::string line; std::getline(input, line);) {
    if (auto uuid = ValueIn(line, "GPU UUID:"); !uuid.empty()) gpu.id = std::move(uuid);
    if (auto bus = ValueIn(line, "Bus Location:"); !bus.empty()) gpu.pci_address = std::move(bus);
    if (const auto minor = ValueIn(line, "Device Minor:"); !minor.empty()) {
      gpu.device_file = "/dev/nvidia" + minor;
    }
  }
  return gpu;
}

// "/dev/nvidia0", but not "/dev/nvidiactl" or "/dev/nvidia-uvm".
bool IsFileOfGpu(std::string_view path) {
  return path.starts_with(kGpuFiles) && IsOf(path.substr(kGpuFiles.size()), kDigits);
}

class Nvidia final : public ClusterGpus {
 public:
  bool OwnsResource(std::string_view resource) const override {
    return resource == kResource || resource == kSharedResource ||
           resource.starts_with(kMigResources);
  }
  bool OwnsDriver(std::string_view driver) const override { return driver == kDriver; }
  std::span<const std::string_view> CdiKinds() const override { return kCdiKinds; }

  Result<std::string> GpuIdOf(std::string_view device_id) const override {
    const std::string id(WithoutReplica(device_id));
    if (id.starts_with(kMigPrefix) || id.find(kGkeSlice) != std::string::npos) {
      return Fail(ErrorCode::kNotExportable,
                  "the device " + id + " is a MIG slice, whose memory is not shared with others",
                  "give the workload whole GPUs (" + std::string(kResource) +
                      "), or set --missing-gpu=rdmaOnly");
    }
    return id;
  }

  bool NamesGpu(std::string_view id) const override {
    return IsUuid(id) || IsGpuFile(kDevFolder + std::string(id));
  }
  bool IsGpuFile(std::string_view path) const override { return IsFileOfGpu(path); }
  std::string_view FilesOfParts() const override { return kMigFiles; }

  std::vector<NodeGpu> List(const std::string& root) const override {
    std::vector<NodeGpu> gpus;
    std::error_code error;
    for (fs::directory_iterator entry(fs::path(root) / "proc/driver/nvidia/gpus", error), end;
         !error && entry != end; entry.increment(error)) {
      NodeGpu gpu = ReadInformation(entry->path() / "information");
      if (!gpu.id.empty() && !gpu.device_file.empty()) gpus.push_back(std::move(gpu));
    }
    std::sort(gpus.begin(), gpus.end(),
              [](const NodeGpu& a, const NodeGpu& b) { return a.pci_address < b.pci_address; });
    return gpus;
  }

  std::span<const std::string_view> SharedDeviceFiles() const override { return kSharedFiles; }
  std::vector<std::string> RuntimeVariables(
      const std::vector<std::string>& gpu_ids) const override {
    std::string devices = "NVIDIA_VISIBLE_DEVICES=";
    for (const std::string& id : gpu_ids) devices += (devices.back() == '=' ? "" : ",") + id;
    return {std::move(devices), "NVIDIA_DRIVER_CAPABILITIES=compute,utility"};
  }
};

}  // namespace

std::unique_ptr<const ClusterGpus> NvidiaClusterGpus() { return std::make_unique<Nvidia>(); }

std::vector<std::string> NvidiaDeviceFiles(const std::string& root) {
  std::vector<std::string> files;
  std::error_code error;
  for (fs::directory_iterator entry(root + kDevFolder, error), end; !error && entry != end;
       entry.increment(error)) {
    std::string path = kDevFolder + entry->path().filename().string();
    if (IsFileOfGpu(path)) files.push_back(std::move(path));
  }
  return files;
}

}  // namespace gantry::gpu
