// A registered buffer: flat bytes over pieces of counted allocations. Immutable but for its state
// and its uses; shared by the registry and by the transfers that use it. Thread-safe.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/clock.h"
#include "lib/base/mutex.h"
#include "lib/base/result.h"
#include "lib/codec/buffer_types.h"
#include "sidecar/memory/mapped_allocation.h"
#include "sidecar/memory/nic_memory.h"
#include "sidecar/memory/piece_map.h"

namespace gantry::registry {

// active <-> suspended; either -> draining -> gone.
enum class BufferState { kActive, kSuspended, kDraining, kGone };
std::string_view NameOf(BufferState state);  // "active", "suspended", "draining", "gone"

class Buffer : public std::enable_shared_from_this<Buffer> {
 public:
  using Allocations = std::vector<std::shared_ptr<const memory::MappedAllocation>>;

  struct Description {
    std::string id;  // unique in this sidecar's life
    std::string workload;
    uint64_t workload_generation = 0;
    std::string name;  // unique within the workload
    uint64_t generation = 0;
    wire::Access access;
    std::optional<wire::BlockLayout> layout;
    memory::PieceMap pieces;
    // Parallel to the allocation indices of the pieces; ids are unique in this sidecar's life.
    std::vector<uint64_t> allocation_ids;
  };

  using OnNics = memory::OnNics;

  // REQUIRES one allocation for each of description.allocation_ids.
  Buffer(Description description, Allocations allocations, OnNics on_nics = WithoutNics());

  const Description& description() const { return description_; }
  uint64_t length() const { return description_.pieces.length(); }
  BufferState state() const EXCLUDES(mutex_);

  // Keeps the buffer's mappings while it lives. Several at once are fine.
  class Use;
  // Fails with kDraining unless the buffer is active. `user` (a transfer's id) is named to those
  // who wait for it.
  static Result<Use> Acquire(std::shared_ptr<Buffer> buffer, std::string_view user);
  // REQUIRES that a shared_ptr owns this buffer.
  Result<Use> Acquire(std::string_view user = {}) EXCLUDES(mutex_);
  // What Acquire and the end of a use touch: for those who have many of them before them.
  void PrefetchForUse() const;
  size_t uses() const EXCLUDES(mutex_);
  // Why RDMA devices have nothing of it; empty when they have it, or it has no memory now.
  std::string WhyNotOnNics() const EXCLUDES(mutex_);
  // Up to `limit` of those that use it now, for messages.
  std::vector<std::string> Users(size_t limit) const EXCLUDES(mutex_);

  // Refuses new uses from now on; `next` is kSuspended or kDraining. False when the buffer is past
  // that state already (draining cannot become suspended, gone stays gone).
  bool StopUses(BufferState next) EXCLUDES(mutex_);
  // Waits until the running uses end. False at the deadline, or when the buffer became active.
  bool AwaitUnused(TimePoint deadline) EXCLUDES(mutex_);
  // From now on AwaitUnused does not wait.
  void EndWaits() EXCLUDES(mutex_);
  // Of a stopped and unused buffer: from now on nobody touches its memory who has it not mapped, as
  // this sidecar refuses it and RDMA devices have let go of it, whatever keys peers know. False: it
  // is active or used, or a device did not let go.
  bool RefuseToPeers() const EXCLUDES(mutex_);
  // Drops the mappings of a stopped and unused buffer, else does nothing; the last buffer of an
  // allocation unmaps it. A draining buffer is gone then. True for the one call that made it gone.
  // `on_devices`: the first failure of an RDMA device to let go of it; nothing else depends on
  // that.
  bool Release(Status* on_devices) EXCLUDES(mutex_);
  // Makes a suspended buffer active again over new mappings; false when it is not suspended.
  bool Resume(Allocations allocations, OnNics on_nics = WithoutNics()) EXCLUDES(mutex_);
  // Whether it is suspended and was released since.
  bool IsAsleep() const EXCLUDES(mutex_);

  static OnNics WithoutNics();

 private:
  // Of an active or used buffer. What the devices have goes before the mappings under it.
  struct Backing {
    Allocations allocations;
    OnNics on_nics;
  };

  void EndUse(std::list<std::string>::iterator user) EXCLUDES(mutex_);

  const Description description_;

  mutable Mutex mutex_;
  Condition changed_;
  BufferState state_ GUARDED_BY(mutex_) = BufferState::kActive;
  bool waits_ended_ GUARDED_BY(mutex_) = false;
  std::list<std::string> users_ GUARDED_BY(mutex_);
  // For the next ones: hundreds of buffers are acquired at a time, and memory that is given back in
  // small pieces is put in order when somebody asks for a large one.
  static constexpr size_t kSpareMax = 4;
  std::list<std::string> spare_ GUARDED_BY(mutex_);
  std::shared_ptr<const Backing> backing_ GUARDED_BY(mutex_);  // null when released
};

class Buffer::Use {
 public:
  Use(Use&& other) noexcept = default;
  Use& operator=(Use&& other) noexcept;
  ~Use();

  const Buffer& buffer() const { return *buffer_; }
  const Allocations& allocations() const { return backing_->allocations; }
  const OnNics& on_nics() const { return backing_->on_nics; }
  // Before the uses of many buffers end.
  void Prefetch() const;

 private:
  friend class Buffer;
  Use(std::shared_ptr<Buffer> buffer, std::shared_ptr<const Backing> backing,
      std::list<std::string>::iterator user);
  void End();

  std::shared_ptr<Buffer> buffer_;  // null after a move
  std::shared_ptr<const Backing> backing_;
  std::list<std::string>::iterator user_;
};

}  // namespace gantry::registry
