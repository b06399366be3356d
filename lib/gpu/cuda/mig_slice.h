// Slices of NVIDIA's GPUs (MIG): a process sees one as its only device, and shares none of its
// memory. Stateless; thread-safe.
#pragma once

#include <string_view>

namespace gantry::gpu {

// Of a slice's UUID, as nvidia-smi prints it, where that of a whole GPU has "GPU-".
inline constexpr std::string_view kMigPrefix = "MIG-";

// By the name of the device, as the driver tells it: "NVIDIA A100-SXM4-40GB MIG 1g.5gb". It has no
// attribute that says it.
bool IsMigSlice(std::string_view device_name);

}  // namespace gantry::gpu
