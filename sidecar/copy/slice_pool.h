// Allocates slices of one half of the staging memory, first come, first served. A payload takes all
// its slices at once, so no holder waits for more. Thread-safe.
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

// Owns slices and returns them on destruction. By then no copy may use them.
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
  // Returns the slices if they are free and no request waits. Otherwise `later` gets them, on the
  // thread that returns the last one: it must return quickly. REQUIRES 0 < count <= size(), and
  // that the pool outlives the leases. `ticket` is for Cancel.
  std::optional<SliceLease> Take(size_t count, Granted later, uint64_t* ticket = nullptr)
      EXCLUDES(mutex_);
  // Returns up to `most` slices that are free now; none while a request waits.
  SliceLease TakeAtOnce(size_t most) EXCLUDES(mutex_);
  // Withdraws a waiting request and drops its `later`; requests behind it may be granted at once.
  // Does nothing if it no longer waits: another thread may be granting it.
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
  // Call and destroy these without the lock.
  using Grants = std::vector<std::pair<Granted, SliceLease>>;
  Grants GrantThoseWhoCan() REQUIRES(mutex_);
  void GiveBack(const std::vector<uint32_t>& slices) EXCLUDES(mutex_);
  std::vector<uint32_t> TakeFree(size_t count) REQUIRES(mutex_);

  const uint32_t size_;
  std::atomic<size_t> in_use_{0};
  Mutex mutex_;
  std::vector<uint32_t> free_ GUARDED_BY(mutex_);  // the next one is last
  std::deque<Waiter> waiters_ GUARDED_BY(mutex_);
  uint64_t next_ticket_ GUARDED_BY(mutex_) = 1;
};

}  // namespace gantry::transport
