// Slices of one half of the staging memory, handed out in the order in which they are asked for:
// all that a payload needs at once, so that nobody who holds some waits for more. Thread-safe.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "lib/base/mutex.h"

namespace gantry::transport {

class SlicePool;

// Slices that belong to whoever has this, and go back with it. Nothing copies to or from them then.
class SliceLease {
 public:
  SliceLease() = default;
  SliceLease(SlicePool* pool, std::vector<uint32_t> slices)
      : pool_(pool), slices_(std::move(slices)) {}
  SliceLease(SliceLease&& other) noexcept { *this = std::move(other); }
  SliceLease& operator=(SliceLease&& other) noexcept;
  ~SliceLease() { Release(); }

  const std::vector<uint32_t>& slices() const { return slices_; }
  void Release();

 private:
  SlicePool* pool_ = nullptr;
  std::vector<uint32_t> slices_;
};

class SlicePool {
 public:
  explicit SlicePool(uint32_t slices);
  SlicePool(const SlicePool&) = delete;
  SlicePool& operator=(const SlicePool&) = delete;

  using Granted = std::function<void(SliceLease)>;
  // The slices, when they are free and nobody waits; else `later` gets them, on the thread of
  // whoever gave the last one back: it hands them on and returns. Who has no more use for them lets
  // them go. REQUIRES 0 < count <= size(), and that the pool outlives all of them. `ticket`: what
  // Cancel takes.
  std::optional<SliceLease> Take(size_t count, Granted later, uint64_t* ticket = nullptr)
      EXCLUDES(mutex_);
  // Of the slices that are free now as many as these, or fewer; none while somebody waits for some.
  SliceLease TakeAtOnce(size_t most) EXCLUDES(mutex_);
  // Who waits with this ticket waits no longer, and nothing keeps its `later`; those behind it may
  // be granted at once. Nothing happens when it does not wait (any more): it may be granted by
  // another thread right now.
  void Cancel(uint64_t ticket) EXCLUDES(mutex_);

  size_t size() const { return size_; }
  size_t in_use() const { return in_use_.load(); }

 private:
  friend class SliceLease;
  struct Waiter {
    uint64_t ticket = 0;
    size_t count = 0;
    Granted granted;
  };
  // To be called, and let go, without the lock.
  using Grants = std::vector<std::pair<Granted, SliceLease>>;
  Grants GrantThoseWhoCan() REQUIRES(mutex_);
  void GiveBack(const std::vector<uint32_t>& slices) EXCLUDES(mutex_);
  std::vector<uint32_t> TakeFree(size_t count) REQUIRES(mutex_);

  const uint32_t size_;
  std::atomic<size_t> in_use_{0};
  Mutex mutex_;
  std::vector<uint32_t> free_ GUARDED_BY(mutex_);  // the next one last
  std::deque<Waiter> waiters_ GUARDED_BY(mutex_);
  uint64_t next_ticket_ GUARDED_BY(mutex_) = 1;
};

}  // namespace gantry::transport
