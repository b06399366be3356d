#include "lib/gpu/gpu_presence.h"

#include <algorithm>
#include <filesystem>
#include <span>
#include <string_view>

#include "lib/gpu/cuda/cuda_calls.h"
#include "lib/gpu/hip/amd_cluster_gpus.h"
#include "lib/gpu/hip/hip_calls.h"

namespace gantry::gpu {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLibraryFolders[] = {"/usr/lib/x86_64-linux-gnu",
                                           "/usr/lib/aarch64-linux-gnu",
                                           "/usr/lib64",
                                           "/usr/lib",
                                           "/usr/local/nvidia/lib64",
                                           "/usr/local/nvidia/lib",
                                           "/usr/local/cuda/compat",
                                           "/opt/rocm/lib"};

// "nvidia0", but not "nvidiactl" or "nvidia-uvm".
bool IsNvidiaGpu(std::string_view name) {
  constexpr std::string_view kPrefix = "nvidia";
  return name.starts_with(kPrefix) && name.size() > kPrefix.size() &&
         name.find_first_not_of("0123456789", kPrefix.size()) == name.npos;
}

std::vector<std::string> NvidiaDeviceFiles(const std::string& root) {
  std::vector<std::string> files;
  std::error_code error;
  for (fs::directory_iterator entry(root + "/dev", error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename();
    if (IsNvidiaGpu(name)) files.push_back("/dev/" + name);
  }
  return files;
}

// Render nodes are of any vendor's: whose they are the PCI bus says.
std::vector<std::string> AmdDeviceFiles(const std::string& root) {
  std::vector<std::string> files;
  std::error_code error;
  for (const NodeGpu& gpu : AmdClusterGpus()->List(root)) {
    if (fs::exists(root + gpu.device_file, error)) files.push_back(gpu.device_file);
  }
  return files;
}

GpuPresence Presence(const std::string& root, std::vector<std::string> device_files,
                     std::span<const char* const> libraries) {
  GpuPresence found;
  found.device_files = std::move(device_files);
  std::sort(found.device_files.begin(), found.device_files.end());
  found.library = libraries.front();
  std::error_code error;
  for (const char* const library : libraries) {
    for (const char* const folder : kLibraryFolders) {
      const std::string path = std::string(folder) + "/" + library;
      if (!fs::exists(root + path, error)) continue;
      found.library = library;
      found.library_path = path;
      return found;
    }
  }
  return found;
}

}  // namespace

std::vector<GpuPresence> FindGpus(const std::string& root) {
  return {Presence(root, NvidiaDeviceFiles(root), cuda::kLibraries),
          Presence(root, AmdDeviceFiles(root), hip::kLibraries)};
}

}  // namespace gantry::gpu
