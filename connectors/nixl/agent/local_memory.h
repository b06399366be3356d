// The memory that an agent registered: a buffer each, in each life of the lease. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "connectors/nixl/abi/nixl_interface.h"
#include "connectors/nixl/agent/agent_card.h"
#include "connectors/nixl/agent/c_handles.h"
#include "connectors/nixl/agent/lease.h"
#include "connectors/nixl/agent/private_blocks.h"
#include "lib/base/mutex.h"

namespace gantry::nixl {

using BufferHandle = std::shared_ptr<gantry_buffer>;

// One registration.
class LocalMemory {
 public:
  LocalMemory(MemoryCard card, MemoryType type) : card_(std::move(card)), type_(type) {}

  const MemoryCard& card() const { return card_; }
  MemoryType type() const { return type_; }
  // Null where `lease` does not have it.
  BufferHandle BufferAt(const std::shared_ptr<Lease>& lease) const;

 private:
  friend class LocalMemoryTable;

  const MemoryCard card_;
  const MemoryType type_;
  mutable Mutex mutex_;
  std::shared_ptr<Lease> lease_ GUARDED_BY(mutex_);
  BlockDescriptor adopted_ GUARDED_BY(mutex_);  // null: it was no private memory
  ArenaHandle arena_ GUARDED_BY(mutex_);        // null: the memory is a GPU's
  BufferHandle buffer_ GUARDED_BY(mutex_);
  std::map<uint64_t, BufferHandle> layouts_ GUARDED_BY(mutex_);  // by the length of their blocks
  bool is_ending_ GUARDED_BY(mutex_) = false;                    // it is withdrawn, or is to be
  bool is_stale_ GUARDED_BY(mutex_) = false;  // it was freed: never registered again
};
using LocalMemoryPointer = std::shared_ptr<LocalMemory>;

class LocalMemoryTable {
 public:
  // `adopts_private`: private memory is made shared memory where it is.
  explicit LocalMemoryTable(bool adopts_private)
      : private_(std::make_unique<PrivateBlocks>(adopts_private)) {}

  Result<LocalMemoryPointer> Register(const std::shared_ptr<Lease>& lease, const BasicDesc& memory,
                                      MemoryType type);
  // An error while transfers of others use it still, or while the sidecar stands still. It may be
  // called again, and RegisterMissing does so.
  Status Unregister(const LocalMemoryPointer& memory);
  // Offers the blocks of registrations beside them, under LayoutName. Names that are none, and
  // lengths that do not fit, are left out.
  void Offer(const std::shared_ptr<Lease>& lease, uint64_t block_bytes,
             std::span<const std::string> buffers);
  // All of it once more, at another lease. What fails is logged, and is missing.
  void RegisterAll(const std::shared_ptr<Lease>& lease);
  // Tries again what is missing or was not unregistered. Returns whether all is well.
  bool RegisterMissing(const std::shared_ptr<Lease>& lease);

 private:
  struct KnownArena {
    uint64_t device = 0;
    uint64_t inode = 0;
    std::weak_ptr<gantry_arena> arena;
  };

  Status Withdraw(LocalMemory& memory, uint64_t drain_ms);
  // Returns true where nothing is left to be unregistered.
  bool WithdrawEnding();
  // Returns false where it is to be tried again.
  bool BindAgain(const std::shared_ptr<Lease>& lease, LocalMemory& memory) REQUIRES(mutex_);
  Status Bind(const std::shared_ptr<Lease>& lease, LocalMemory& memory) REQUIRES(mutex_);
  void OfferOne(const std::shared_ptr<Lease>& lease, uint64_t block_bytes, LocalMemory& memory)
      REQUIRES(mutex_);
  Result<ArenaHandle> ArenaOf(const std::shared_ptr<Lease>& lease, LocalMemory& memory)
      REQUIRES(mutex_);
  Result<ArenaHandle> SharedArenaOf(const std::shared_ptr<Lease>& lease, const MemoryCard& card)
      REQUIRES(mutex_);

  // New in each process: a buffer's name is never that of other memory.
  const std::string prefix_ = NamePrefix();
  static std::string NamePrefix();

  std::atomic<bool> has_missing_{false};
  std::atomic<uint64_t> made_{0};
  const std::unique_ptr<PrivateBlocks> private_;  // thread-safe
  Mutex mutex_;
  std::map<std::string, LocalMemoryPointer> all_ GUARDED_BY(mutex_);  // by buffer
  std::map<uintptr_t, KnownArena> arenas_ GUARDED_BY(mutex_);         // by address
};

}  // namespace gantry::nixl
