// What a transport is asked to move: merged and cut segments between allocations of two sides.
// Made by the engine after every check; immutable afterwards.
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

// A buffer of the other side by its name there, for a transport that addresses buffers: its owner
// resolves it for each request. Implemented by that transport; immutable; thread-safe.
class RemoteTarget {
 public:
  virtual ~RemoteTarget() = default;
  virtual uint64_t length() const = 0;  // of the buffer: flat bytes [0, length)
  // Where several paths lead there: as this one names it; null: it does not.
  virtual const RemoteTarget* Over(wire::Path /*path*/) const { return this; }
};

// An allocation of the other side, as far as this side can use it.
struct RemoteAllocation {
  // Mapped in this sidecar's workers; null when no mapped path leads there.
  std::shared_ptr<const memory::MappedAllocation> mapped;
  // Null when no transport that addresses buffers leads there.
  std::shared_ptr<const RemoteTarget> target = nullptr;
  std::string why_not_mapped = {};  // where it was tried in vain
};

struct MovePlan {
  wire::Operation operation = wire::Operation::kRead;
  std::vector<std::shared_ptr<const memory::MappedAllocation>> local;
  std::vector<RemoteAllocation> remote;
  // What RDMA devices have of the local buffers, each of which is pieces of `local`.
  std::vector<std::shared_ptr<const memory::NicMemory>> local_on_nics;
  SegmentList segments;
  // Item i of the plan is item item_order[i] of the request; empty: the same order.
  std::vector<uint32_t> item_order;
  uint64_t bytes = 0;
  uint64_t descriptors_in = 0;  // as asked for: ranges, or blocks times buffers
};

}  // namespace gantry::transport
