#include "lib/gpu/gpu_presence.h"

#include <algorithm>
#include <filesystem>

#include "lib/gpu/gpu_vendors.h"

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

GpuPresence Presence(const std::string& root, const GpuVendor& vendor) {
  GpuPresence found;
  found.device_files = vendor.device_files(root);
  std::sort(found.device_files.begin(), found.device_files.end());
  found.library = vendor.libraries.front();
  std::error_code error;
  for (const char* const library : vendor.libraries) {
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
  std::vector<GpuPresence> found;
  for (const GpuVendor& vendor : GpuVendors()) found.push_back(Presence(root, vendor));
  return found;
}

}  // namespace gantry::gpu
