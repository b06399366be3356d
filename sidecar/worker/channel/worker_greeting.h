// What a copy worker says of the GPUs once it has started, or has asked for its GPU again. Plain
// values and pure functions.
#pragma once

#include <string>
#include <vector>

#include "lib/base/result.h"
#include "lib/gpu/shared/gpu_types.h"

namespace gantry::worker {

struct Greeting {
  struct Gpu {
    std::string uuid;
    bool reached = false;          // kernels of the worker's GPU may follow addresses of its memory
    std::string pci_address = {};  // "0000:1b:00.0"; empty: unknown
  };
  std::vector<Gpu> gpus;           // that it sees, that of its context first
  gpu::MemoryAmount memory;        // of that one, with the context
  Status status;                   // why it has none
  gpu::SharingRules sharing = {};  // of the driver
};

// As far as `bytes_max` go.
std::string TextOf(const Greeting& greeting, size_t bytes_max);
// What was said with the answer `status`.
Greeting GreetingOf(Status status, const std::string& said);

}  // namespace gantry::worker
