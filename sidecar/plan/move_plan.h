// The input of a transport: merged and cut segments between allocations of two sides. The engine
// builds it after every check; immutable afterwards.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lib/wire/transfer_request.h"
#include "sidecar/memory/mapped_allocation.h"
#include "sidecar/memory/nic_memory.h"
#include "sidecar/plan/segment_list.h"

namespace gantry::transport {

// A buffer of the other side under its name there, for transports that address buffers. Its owner
// resolves it at each request. The transport implements it; immutable; thread-safe.
class RemoteTarget {
 public:
  virtual ~RemoteTarget() = default;
  virtual uint64_t length() const = 0;  // length of the flat buffer, in bytes
  // Returns this target as `path` names it, where several paths lead there; null: `path` does not.
  virtual const RemoteTarget* Over(wire::Path /*path*/) const { return this; }
};

// An allocation of the other side, as this side can use it.
struct RemoteAllocation {
  // Its mapping in this sidecar's workers; null when no mapped path leads there.
  std::shared_ptr<const memory::MappedAllocation> mapped;
  // Null when no transport that addresses buffers leads there.
  std::shared_ptr<const RemoteTarget> target = nullptr;
  std::string why_not_mapped = {};  // set when mapping was tried and failed
};

struct MovePlan {
  wire::Operation operation = wire::Operation::kRead;
  std::vector<std::shared_ptr<const memory::MappedAllocation>> local;
  std::vector<RemoteAllocation> remote;
  // RDMA registrations of the local buffers, each made of pieces of `local`.
  std::vector<std::shared_ptr<const memory::NicMemory>> local_nic_memory;
  SegmentList segments;
  // Item i of the plan is item item_order[i] of the request; empty: same order.
  std::vector<uint32_t> item_order;
  uint64_t bytes = 0;
  uint64_t descriptors_in = 0;  // as requested: ranges, or blocks times buffers
};

// Fails with kFdTooShort where the file of an allocation was truncated. The copy of a last page in
// part is no fault, and devices keep the pages that they pinned: so this is asked when a transfer
// is admitted and before it succeeds. Two system calls for each allocation that is unsealed.
inline Status CheckNotTruncated(
    const std::vector<std::shared_ptr<const memory::MappedAllocation>>& local,
    const std::vector<RemoteAllocation>& remote) {
  for (const auto& allocation : local) RETURN_IF_ERROR(allocation->CheckNotTruncated());
  for (const RemoteAllocation& allocation : remote) {
    if (allocation.mapped != nullptr) RETURN_IF_ERROR(allocation.mapped->CheckNotTruncated());
  }
  return {};
}

}  // namespace gantry::transport
