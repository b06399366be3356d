// A copy worker's report on its GPUs, after its start or after another attempt to get a context.
// Plain values and pure functions.
#pragma once

#include <string>
#include <vector>

#include "lib/base/result.h"
#include "lib/gpu/shared/gpu_types.h"

namespace gantry::worker {

struct Greeting {
  struct Gpu {
    std::string uuid;
    bool reached = false;          // kernels of the worker's GPU may access its memory
    std::string pci_address = {};  // "0000:1b:00.0"; empty: unknown
  };
  std::vector<Gpu> gpus;           // visible GPUs, that of its context first
  gpu::MemoryAmount memory;        // of that GPU, measured with the context
  Status status;                   // why it has no context
  gpu::SharingRules sharing = {};  // the driver's
};

// Serialises the greeting, cut to `bytes_max`.
std::string TextOf(const Greeting& greeting, size_t bytes_max);
// Parses the text `said` that came with the answer `status`.
Greeting GreetingOf(Status status, const std::string& said);

}  // namespace gantry::worker
