#include "lib/gpu/gpu_presence.h"

#include <algorithm>
#include <filesystem>
#include <string_view>

#include "lib/gpu/cuda_calls.h"

namespace gantry::gpu {
namespace {

// "nvidia0", but not "nvidiactl" or "nvidia-uvm".
bool IsGpu(std::string_view name) {
  constexpr std::string_view kPrefix = "nvidia";
  return name.starts_with(kPrefix) && name.size() > kPrefix.size() &&
         name.find_first_not_of("0123456789", kPrefix.size()) == name.npos;
}

constexpr const char* kLibraryFolders[] = {"/usr/lib/x86_64-linux-gnu",
                                           "/usr/lib/aarch64-linux-gnu",
                                           "/usr/lib64",
                                           "/usr/lib",
                                           "/usr/local/nvidia/lib64",
                                           "/usr/local/nvidia/lib",
                                           "/usr/local/cuda/compat"};

}  // namespace

GpuPresence FindGpus(const std::string& root) {
  namespace fs = std::filesystem;
  GpuPresence found;
  found.library = cuda::kLibrary;
  std::error_code error;
  for (fs::directory_iterator entry(root + "/dev", error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename();
    if (IsGpu(name)) found.device_files.push_back("/dev/" + name);
  }
  std::sort(found.device_files.begin(), found.device_files.end());
  for (const char* const folder : kLibraryFolders) {
    const std::string path = std::string(folder) + "/" + found.library;
    if (!fs::exists(root + path, error)) continue;
    found.library_path = path;
    break;
  }
  return found;
}

}  // namespace gantry::gpu
