// A registration whose tokens were resolved to allocations of its workload: checked, not yet
// mapped. Plain values; ResolveRequest is thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "lib/base/result.h"
#include "lib/wire/registration_request.h"
#include "sidecar/registry/allocation_table.h"
#include "sidecar/registry/buffer.h"
#include "sidecar/registry/registration_check.h"
#include "sidecar/registry/workload_table.h"

namespace gantry::registry {

struct ResolvedRequest {
  uint64_t workload_generation = 0;
  std::vector<CheckedBuffer> buffers;                          // parallel to request.buffers
  std::vector<std::shared_ptr<AllocationRecord>> allocations;  // parallel to request.allocations

  // Returns one buffer's records, in the index order of its pieces.
  std::vector<std::shared_ptr<AllocationRecord>> AllocationsOf(size_t buffer) const;
};

// Looks up each descriptor among those of this workload, checks it, and finds its record.
Result<ResolvedRequest> ResolveRequest(const wire::RegistrationRequest& request,
                                       std::vector<CheckedBuffer> buffers,
                                       const WorkloadTable& workloads, AllocationTable& table);

// kConflict, naming the difference, unless the buffer equals the specification.
Status CheckSame(const Buffer& existing, const wire::BufferSpec& asked,
                 const ResolvedRequest& resolved, size_t buffer);

// True when a suspended buffer may take the memory of the request: all else must be equal.
bool MayTakeMemory(const Buffer& existing, const wire::BufferSpec& asked,
                   const ResolvedRequest& resolved, size_t buffer);

}  // namespace gantry::registry
