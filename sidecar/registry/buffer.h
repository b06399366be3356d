// A registered buffer: flat bytes over pieces of reference-counted allocations. Immutable except
// for its state and its uses. The registry and the transfers that use it share it. Thread-safe.
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
    std::string id;  // unique within one run of this sidecar
    std::string workload;
    uint64_t workload_generation = 0;
    std::string name;  // unique within the workload
    uint64_t generation = 0;
    wire::Access access;
    std::optional<wire::BlockLayout> layout;
    memory::PieceMap pieces;
    // Parallel to the pieces' allocation indices; unique within one run of this sidecar.
    std::vector<uint64_t> allocation_ids;
  };

  using NicRegistration = memory::NicRegistration;

  // REQUIRES one allocation for each of description.allocation_ids.
  Buffer(Description description, Allocations allocations,
         NicRegistration nic_registration = WithoutNics());

  const Description& description() const { return description_; }
  uint64_t length() const { return description_.pieces.length(); }
  BufferState state() const EXCLUDES(mutex_);

  // Keeps the buffer's mappings while it lives. A buffer may have several uses at once.
  class Use;
  // Fails with kDraining unless the buffer is active. `user`, a transfer's id, appears in messages
  // of those who wait for the use.
  static Result<Use> Acquire(std::shared_ptr<Buffer> buffer, std::string_view user);
  // REQUIRES that a shared_ptr owns this buffer.
  Result<Use> Acquire(std::string_view user = {}) EXCLUDES(mutex_);
  size_t uses() const EXCLUDES(mutex_);
  // Why the buffer has no RDMA registration; empty when it has one, or has no memory now.
  std::string WhyNotOnNics() const EXCLUDES(mutex_);
  // Returns up to `limit` names of current users, for messages.
  std::vector<std::string> Users(size_t limit) const EXCLUDES(mutex_);

  // Refuses new uses; `next` is kSuspended or kDraining. Returns false if the buffer is past that
  // state: draining never becomes suspended, gone is final.
  bool StopUses(BufferState next) EXCLUDES(mutex_);
  // Waits for the running uses to end. Returns false at the deadline, after EndWaits, or when the
  // buffer became active.
  bool AwaitUnused(TimePoint deadline) EXCLUDES(mutex_);
  // Makes AwaitUnused return at once from now on.
  void EndWaits() EXCLUDES(mutex_);
  // Deregisters a stopped and unused buffer from the RDMA devices, so that peers' keys become
  // invalid. Mappings stay. Returns false if the buffer is active or used, or if a device failed to
  // deregister.
  bool RefuseToPeers() const EXCLUDES(mutex_);
  // Drops the mappings of a stopped and unused buffer; otherwise does nothing. The last buffer of
  // an allocation unmaps it. Returns true only for the call that makes a draining buffer gone.
  // `on_devices` receives the first failure of an RDMA device; it changes nothing else.
  bool Release(Status* on_devices) EXCLUDES(mutex_);
  // Makes a suspended buffer active over new mappings; false when it is not suspended.
  bool Resume(Allocations allocations, NicRegistration nic_registration = WithoutNics())
      EXCLUDES(mutex_);
  // True when it is suspended and its mappings were released.
  bool IsAsleep() const EXCLUDES(mutex_);

  static NicRegistration WithoutNics();

 private:
  // The mappings and registrations. The registrations are dropped before the mappings under them.
  struct Backing {
    Allocations allocations;
    NicRegistration nic_registration;
  };

  void EndUse(std::list<std::string>::iterator user) EXCLUDES(mutex_);

  const Description description_;

  mutable Mutex mutex_;
  Condition changed_;
  BufferState state_ GUARDED_BY(mutex_) = BufferState::kActive;
  bool waits_ended_ GUARDED_BY(mutex_) = false;
  std::list<std::string> users_ GUARDED_BY(mutex_);
  // Spare list nodes for the next uses. Hundreds of buffers are acquired at a time, and many small
  // frees make a later large allocation slow.
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
  const NicRegistration& nic_registration() const { return backing_->nic_registration; }

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
