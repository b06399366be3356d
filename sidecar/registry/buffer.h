// A registered buffer: flat bytes over pieces of counted allocations. Immutable but for its state
// and its use count; shared by the registry and by the transfers that use it. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lib/base/mutex.h"
#include "lib/base/result.h"
#include "lib/wire/buffer_types.h"
#include "sidecar/memory/mapped_allocation.h"
#include "sidecar/memory/piece_map.h"

namespace gantry::registry {

enum class BufferState { kActive, kSuspended, kDraining, kGone };
std::string_view NameOf(BufferState state);  // "active", "suspended", "draining", "gone"

class Buffer {
 public:
  struct Description {
    std::string id;        // unique in this sidecar's life
    std::string workload;
    std::string name;      // unique within the workload
    uint64_t generation = 0;
    wire::Access access;
    std::optional<wire::BlockLayout> layout;
    memory::PieceMap pieces;
    // Parallel to the allocation indices of the pieces; ids are unique in this sidecar's life.
    std::vector<uint64_t> allocation_ids;
  };

  Buffer(Description description,
         std::vector<std::shared_ptr<const memory::MappedAllocation>> allocations);

  const Description& description() const { return description_; }
  uint64_t length() const { return description_.pieces.length(); }
  BufferState state() const EXCLUDES(mutex_);

  // Keeps the buffer's mappings while it lives. Several at once are fine.
  class Use;
  // Fails with kDraining unless the buffer is active.
  Result<Use> Acquire(std::shared_ptr<Buffer> self) EXCLUDES(mutex_);

  // Stops new uses, then waits until the running ones end; false at the deadline. Idempotent.
  bool Drain(BufferState next, TimePoint deadline) EXCLUDES(mutex_);
  // REQUIRES drained. Drops the mappings; the last buffer of an allocation unmaps it.
  void Release() EXCLUDES(mutex_);
  // Makes a suspended buffer active again over new mappings.
  void Resume(std::vector<std::shared_ptr<const memory::MappedAllocation>> allocations)
      EXCLUDES(mutex_);
  size_t uses() const EXCLUDES(mutex_);

 private:
  void EndUse() EXCLUDES(mutex_);

  const Description description_;

  mutable Mutex mutex_;
  Condition unused_;
  BufferState state_ GUARDED_BY(mutex_) = BufferState::kActive;
  size_t uses_ GUARDED_BY(mutex_) = 0;
  std::vector<std::shared_ptr<const memory::MappedAllocation>> allocations_ GUARDED_BY(mutex_);
};

class Buffer::Use {
 public:
  Use(Use&& other) noexcept = default;
  Use& operator=(Use&& other) noexcept;
  ~Use();

  const Buffer& buffer() const { return *buffer_; }
  const std::vector<std::shared_ptr<const memory::MappedAllocation>>& allocations() const {
    return allocations_;
  }

 private:
  friend class Buffer;
  Use(std::shared_ptr<Buffer> buffer,
      std::vector<std::shared_ptr<const memory::MappedAllocation>> allocations);

  std::shared_ptr<Buffer> buffer_;
  std::vector<std::shared_ptr<const memory::MappedAllocation>> allocations_;
};

}  // namespace gantry::registry
