// Copies between memory of GPUs and staging memory, for transports whose bytes go through the
// sidecar itself. Implemented over the copy workers. Thread-safe, but for Poll.
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

// Bytes that lie on a GPU, and where they are staged.
struct StagedRange {
  std::shared_ptr<const memory::MappedAllocation> memory;
  uint64_t offset = 0;  // within it
  uint64_t stage_offset = 0;
  uint64_t bytes = 0;
};

struct StagedCopy {
  bool to_gpu = false;
  std::vector<StagedRange> ranges;  // not empty
  int priority = 0;
  // No byte reaches the GPU afterwards: what still runs is ended by force, with the workers that
  // copy it. Some time before nothing of it is begun any more.
  std::optional<TimePoint> end = {};
  const void* owner = nullptr;  // for Abort
  // Called once, by any thread, also by the one that calls Start: it hands on what it is told and
  // returns. Nothing of the copy moves any more, and nothing keeps the ranges' memory. An error:
  // any part of it may have been copied. kDeadlineExceeded: not all of it by its end.
  std::function<void(Status)> done;
};

class StagingCopier {
 public:
  virtual ~StagingCopier() = default;
  // Whether there is anybody to copy; the error says why not.
  virtual Status Usable() const = 0;
  virtual void Start(StagedCopy copy) = 0;
  // Ends by force what was started for this owner and is not done.
  virtual void Abort(const void* owner) = 0;
  // By the engine's driver: true when anything moved on.
  virtual bool Poll() = 0;

  struct Totals {
    std::atomic<uint64_t> bytes_from_gpu{0};
    std::atomic<uint64_t> bytes_to_gpu{0};
  };
  const Totals& totals() const { return totals_; }

 protected:
  Totals totals_;
};

}  // namespace gantry::transport
