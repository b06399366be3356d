// What a transport is asked to move: merged and cut segments between allocations of two sides.
// Made by the engine after every check; immutable afterwards.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "lib/wire/transfer_request.h"
#include "sidecar/memory/mapped_allocation.h"

namespace gantry::transport {

// A buffer of the other side by its name there, for a transport that addresses buffers: its owner
// resolves it for each request. Implemented by that transport; immutable; thread-safe.
class RemoteTarget {
 public:
  virtual ~RemoteTarget() = default;
  virtual uint64_t length() const = 0;  // of the buffer: flat bytes [0, length)
};

// An allocation of the other side, as far as this side can use it.
struct RemoteAllocation {
  // Mapped in this sidecar's workers; null when no mapped path leads there.
  std::shared_ptr<const memory::MappedAllocation> mapped;
  // Null when no transport that addresses buffers leads there.
  std::shared_ptr<const RemoteTarget> target = nullptr;
};

// `count` blocks of `length` bytes; block i lies i * stride behind the first. Covers the items
// (ranges, or pairs of block ids) [first_item, first_item + items) of the request.
struct MoveSegment {
  uint32_t local_allocation = 0;  // index into MovePlan::local
  uint32_t remote_allocation = 0;
  uint64_t local_offset = 0;  // bytes within the allocation
  uint64_t remote_offset = 0;
  uint64_t length = 0;
  uint64_t local_stride = 0;
  uint64_t remote_stride = 0;
  uint32_t count = 1;
  uint32_t first_item = 0;  // in the plan's order of items
  uint32_t items = 1;

  uint64_t bytes() const { return length * count; }
};

struct MovePlan {
  wire::Operation operation = wire::Operation::kRead;
  std::vector<std::shared_ptr<const memory::MappedAllocation>> local;
  std::vector<RemoteAllocation> remote;
  std::vector<MoveSegment> segments;
  // Item i of the plan is item item_order[i] of the request; empty: the same order.
  std::vector<uint32_t> item_order;
  uint64_t bytes = 0;
  uint64_t descriptors_in = 0;  // as asked for: ranges, or blocks times buffers
};

}  // namespace gantry::transport
