// Copies between staging memory and memory that the copy workers alone touch, for transports whose
// bytes pass through the sidecar. Implemented over the copy workers. Thread-safe, except Poll.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "lib/base/clock.h"
#include "lib/base/result.h"
#include "sidecar/memory/mapped_allocation.h"

namespace gantry::transport {

// Bytes of an allocation, and their place in the staging memory.
struct StagedRange {
  std::shared_ptr<const memory::MappedAllocation> memory;
  uint64_t offset = 0;  // within the allocation
  uint64_t stage_offset = 0;
  uint64_t bytes = 0;
};

struct StagedCopy {
  bool to_buffer = false;           // to the ranges, and not from them
  std::vector<StagedRange> ranges;  // not empty
  int priority = 0;
  // After this time no byte reaches the ranges. The workers that still copy are killed; shortly
  // before, nothing new is started.
  std::optional<TimePoint> end = {};
  const void* owner = nullptr;  // key for Abort
  // Called once, on any thread, possibly inside Start: must return quickly. Nothing of the copy
  // moves any more and no range is kept. On an error any part may have been copied.
  // kDeadlineExceeded: not everything before `end`.
  std::function<void(Status)> done;
};

class StagingCopier {
 public:
  virtual ~StagingCopier() = default;
  // Fails with the reason when there is no worker to copy this kind of memory.
  virtual Status Usable(wire::MemoryKind kind) const = 0;
  virtual void Start(StagedCopy copy) = 0;
  // Forcibly ends the owner's copies that are not done.
  virtual void Abort(const void* owner) = 0;
  // Called by the driver; returns true when anything progressed.
  virtual bool Poll() = 0;

  struct Totals {
    std::atomic<uint64_t> bytes_from_buffers{0};
    std::atomic<uint64_t> bytes_to_buffers{0};
  };
  const Totals& totals() const { return totals_; }

 protected:
  Totals totals_;
};

}  // namespace gantry::transport
