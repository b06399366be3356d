// A registration whose tokens have become allocations of its workload: checked, not yet mapped.
// Plain values; ResolveRequest is thread-safe.
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

  // Those of one buffer, in the order in which its pieces count them.
  std::vector<std::shared_ptr<AllocationRecord>> AllocationsOf(size_t buffer) const;
};

// Finds each descriptor among those that this very workload handed over, checks what it stands for
// and finds its record.
Result<ResolvedRequest> ResolveRequest(const wire::RegistrationRequest& request,
                                       std::vector<CheckedBuffer> buffers,
                                       const WorkloadTable& workloads, AllocationTable& table);

// kConflict, naming what differs, unless the buffer is what the request specifies.
Status CheckSame(const Buffer& existing, const wire::BufferSpec& asked,
                 const ResolvedRequest& resolved, size_t buffer);

// Whether the suspended buffer takes the memory that the request names: all but that is the same.
bool MayTakeMemory(const Buffer& existing, const wire::BufferSpec& asked,
                   const ResolvedRequest& resolved, size_t buffer);

}  // namespace gantry::registry
