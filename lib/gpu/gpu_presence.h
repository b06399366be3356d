// What of the GPUs and their driver is to be found in the file system, without loading a driver: a
// container may have the one without the other. Stateless; thread-safe.
#pragma once

#include <string>
#include <vector>

namespace gantry::gpu {

// Of one vendor.
struct GpuPresence {
  std::vector<std::string> device_files;  // of GPUs: "/dev/..."
  std::string library;                    // the driver's, as programs load it
  std::string library_path;               // where it is; empty: nowhere that is looked at
};

// One for each vendor that this build knows. `root` is "/" or a test's folder.
std::vector<GpuPresence> FindGpus(const std::string& root);

}  // namespace gantry::gpu
