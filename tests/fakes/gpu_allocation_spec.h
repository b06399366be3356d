// A GPU's allocation as its workload tells of it, exported by a handle. Stateless; thread-safe.
#pragma once

#include <cstdint>
#include <string>

#include "lib/wire/registration_request.h"

namespace gantry::testing {

inline wire::AllocationSpec GpuAllocationSpec(uint64_t bytes, uint64_t buffer_id = 7,
                                              char handle = 'h') {
  wire::AllocationSpec spec;
  spec.kind = wire::MemoryKind::kGpu;
  spec.size = bytes;
  spec.device_uuid = "GPU-1";
  spec.buffer_id = buffer_id;
  spec.pid = 1;
  spec.ipc_handle = std::string(wire::kIpcHandleBytes, handle);
  return spec;
}

}  // namespace gantry::testing
