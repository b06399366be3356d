#include "connectors/nixl/agent/local_memory.h"

#include <iterator>
#include <utility>
#include <vector>

#include "connectors/nixl/agent/layout_request.h"
#include "connectors/nixl/agent/plugin_log.h"
#include "connectors/nixl/agent/shared_mapping.h"
#include "lib/base/random_id.h"

namespace gantry::nixl {
namespace {

constexpr size_t kLayoutsMax = 8;  // of one registration
constexpr uint64_t kDrainMs = 1'000;

// `block_bytes` 0: without blocks.
Result<BufferHandle> RegisterBuffer(gantry_client* client, const MemoryCard& card,
                                    uint64_t block_bytes) {
  const std::string name = block_bytes == 0 ? card.buffer : LayoutName(card.buffer, block_bytes);
  const gantry_piece piece = {reinterpret_cast<const void*>(card.base), card.bytes};
  gantry_buffer_spec spec = {};
  spec.name = name.c_str();
  spec.pieces = &piece;
  spec.piece_count = 1;
  spec.access = GANTRY_REMOTE_READ | GANTRY_REMOTE_WRITE;
  spec.block_bytes = block_bytes;
  spec.blocks = block_bytes == 0 ? 0 : card.bytes / block_bytes;
  gantry_buffer* buffer = nullptr;
  Status done = Take(gantry_buffers_register(client, &spec, 1, &buffer));
  if (!done && done.error().code == ErrorCode::kFdReadOnly) {
    spec.access = GANTRY_REMOTE_READ;
    done = Take(gantry_buffers_register(client, &spec, 1, &buffer));
  }
  if (!done) return Fail(std::move(done).error());
  return BufferHandle(buffer, DestroysHandle());
}

}  // namespace

BufferHandle LocalMemory::BufferAt(const std::shared_ptr<Lease>& lease) const {
  const MutexLock lock(mutex_);
  return lease_ == lease && !is_ending_ ? buffer_ : nullptr;
}

std::string LocalMemoryTable::NamePrefix() { return "m" + HexOf(RandomGeneration()) + "."; }

Result<LocalMemoryPointer> LocalMemoryTable::Register(const std::shared_ptr<Lease>& lease,
                                                      const BasicDesc& memory, MemoryType type) {
  auto made = std::make_shared<LocalMemory>(
      MemoryCard{prefix_ + std::to_string(made_++), memory.address, memory.bytes}, type);
  // Adopts it before the lock, which others need: seconds for each GiB. Bind then finds it adopted.
  ArenaHandle adopted;
  BlockDescriptor kept;
  if (type == MemoryType::kDram) {
    ASSIGN_OR_RETURN(adopted, private_->Adopt(lease->client(), made->card(), &kept));
  }
  const MutexLock lock(mutex_);
  {
    const MutexLock inner(made->mutex_);
    made->adopted_ = std::move(kept);
  }
  RETURN_IF_ERROR(Bind(lease, *made));
  all_.emplace(made->card().buffer, made);
  return made;
}

Status LocalMemoryTable::Unregister(const LocalMemoryPointer& memory) {
  {
    const MutexLock inner(memory->mutex_);
    memory->is_ending_ = true;  // no transfer begins with it from here on
  }
  Status done = Withdraw(*memory, kDrainMs);
  if (!done) has_missing_ = true;
  return done;
}

Status LocalMemoryTable::Withdraw(LocalMemory& memory, uint64_t drain_ms) {
  std::shared_ptr<Lease> lease;
  std::vector<BufferHandle> buffers;
  {
    const MutexLock lock(mutex_);
    const MutexLock inner(memory.mutex_);
    lease = memory.lease_;
    if (memory.buffer_ != nullptr) buffers.push_back(memory.buffer_);
    for (const auto& [block_bytes, layout] : memory.layouts_)
      if (layout != nullptr) buffers.push_back(layout);
  }
  if (lease != nullptr && lease->IsSilent())
    return Fail(ErrorCode::kSidecarLost, "the sidecar gave no answer in time a moment ago");
  for (const BufferHandle& buffer : buffers)
    RETURN_IF_ERROR(Take(gantry_buffer_unregister(buffer.get(), drain_ms)));
  ArenaHandle arena;
  BlockDescriptor adopted;
  LocalMemoryPointer last;
  {
    const MutexLock lock(mutex_);
    const MutexLock inner(memory.mutex_);
    if (const auto found = all_.find(memory.card().buffer); found != all_.end()) {
      last = found->second;
      all_.erase(found);
    }
    memory.lease_ = nullptr;
    memory.layouts_.clear();
    memory.buffer_ = nullptr;
    arena.swap(memory.arena_);
    adopted.swap(memory.adopted_);
  }
  buffers.clear();  // before the arena
  return {};
}

bool LocalMemoryTable::WithdrawEnding() {
  std::vector<LocalMemoryPointer> ending;
  {
    const MutexLock lock(mutex_);
    for (const auto& [name, memory] : all_) {
      const MutexLock inner(memory->mutex_);
      if (memory->is_ending_) ending.push_back(memory);
    }
  }
  bool all = true;
  for (const LocalMemoryPointer& memory : ending) {
    const Status done = Withdraw(*memory, 0);
    all = all && done;
  }
  return all;
}

bool LocalMemoryTable::BindAgain(const std::shared_ptr<Lease>& lease, LocalMemory& memory) {
  static log::RateLimiter limiter;
  const Status bound = Bind(lease, memory);
  if (bound) return true;
  const MutexLock inner(memory.mutex_);
  if (bound.error().code == ErrorCode::kStaleGeneration && memory.adopted_ != nullptr) {
    plugin_log::Warning("memory is not registered again", bound.error());
    memory.is_stale_ = true;
    memory.adopted_ = nullptr;
    return true;
  }
  plugin_log::Seldom(limiter, "memory is not registered again yet", bound.error());
  return false;
}

void LocalMemoryTable::RegisterAll(const std::shared_ptr<Lease>& lease) {
  const MutexLock lock(mutex_);
  for (auto each = all_.begin(); each != all_.end();) {
    const LocalMemoryPointer memory = each->second;
    const MutexLock inner(memory->mutex_);
    memory->lease_ = nullptr;
    memory->buffer_ = nullptr;
    memory->arena_ = nullptr;
    for (auto& [block_bytes, layout] : memory->layouts_) layout = nullptr;
    if (memory->is_ending_) memory->adopted_ = nullptr;  // the lease that had it has ended
    each = memory->is_ending_ ? all_.erase(each) : std::next(each);
  }
  arenas_.clear();
  has_missing_ = false;
  for (const auto& [name, memory] : all_) {
    std::vector<uint64_t> layouts;
    {
      const MutexLock inner(memory->mutex_);
      if (memory->is_ending_ || memory->is_stale_) continue;
    }
    if (!BindAgain(lease, *memory)) has_missing_ = true;
    {
      const MutexLock inner(memory->mutex_);
      for (const auto& [block_bytes, layout] : memory->layouts_) layouts.push_back(block_bytes);
    }
    for (const uint64_t block_bytes : layouts) OfferOne(lease, block_bytes, *memory);
  }
}

bool LocalMemoryTable::RegisterMissing(const std::shared_ptr<Lease>& lease) {
  if (!has_missing_.exchange(false)) return true;
  if (!WithdrawEnding()) has_missing_ = true;
  const MutexLock lock(mutex_);
  for (const auto& [name, memory] : all_) {
    {
      const MutexLock inner(memory->mutex_);
      if (memory->is_ending_ || memory->is_stale_ || memory->lease_ == lease) continue;
    }
    if (!BindAgain(lease, *memory)) has_missing_ = true;
  }
  return !has_missing_;
}

void LocalMemoryTable::Offer(const std::shared_ptr<Lease>& lease, uint64_t block_bytes,
                             std::span<const std::string> buffers) {
  const MutexLock lock(mutex_);
  for (const std::string& buffer : buffers) {
    const auto found = all_.find(buffer);
    if (found != all_.end()) OfferOne(lease, block_bytes, *found->second);
  }
}

void LocalMemoryTable::OfferOne(const std::shared_ptr<Lease>& lease, uint64_t block_bytes,
                                LocalMemory& memory) {
  if (block_bytes == 0 || block_bytes > memory.card().bytes) return;
  {
    const MutexLock lock(memory.mutex_);
    if (memory.lease_ != lease || memory.is_ending_) return;
    const auto known = memory.layouts_.find(block_bytes);
    if (known != memory.layouts_.end() && known->second != nullptr) return;
    if (known == memory.layouts_.end() && memory.layouts_.size() >= kLayoutsMax) return;
  }
  // Without the memory's lock, which transfers need.
  auto layout = RegisterBuffer(lease->client(), memory.card(), block_bytes);
  const MutexLock lock(memory.mutex_);
  if (layout) {
    memory.layouts_[block_bytes] = *std::move(layout);
  } else {
    plugin_log::Warning("blocks of memory are not offered", layout.error());
  }
}

Status LocalMemoryTable::Bind(const std::shared_ptr<Lease>& lease, LocalMemory& memory) {
  ArenaHandle arena;
  if (memory.type() == MemoryType::kDram) {
    ASSIGN_OR_RETURN(arena, ArenaOf(lease, memory));
  }
  ASSIGN_OR_RETURN(BufferHandle buffer, RegisterBuffer(lease->client(), memory.card(), 0));
  const MutexLock lock(memory.mutex_);
  memory.lease_ = lease;
  memory.arena_ = std::move(arena);
  memory.buffer_ = std::move(buffer);
  return {};
}

Result<ArenaHandle> LocalMemoryTable::ArenaOf(const std::shared_ptr<Lease>& lease,
                                              LocalMemory& memory) {
  BlockDescriptor kept;
  {
    const MutexLock lock(memory.mutex_);
    kept = memory.adopted_;
  }
  // Without the memory's lock, which transfers need.
  auto adopted = private_->Adopt(lease->client(), memory.card(), &kept);
  {
    const MutexLock lock(memory.mutex_);
    memory.adopted_ = std::move(kept);
  }
  if (!adopted || *adopted != nullptr) return adopted;
  return SharedArenaOf(lease, memory.card());
}

Result<ArenaHandle> LocalMemoryTable::SharedArenaOf(const std::shared_ptr<Lease>& lease,
                                                    const MemoryCard& card) {
  ASSIGN_OR_RETURN(const SharedMapping mapping, FindSharedMapping(card.base, card.bytes));
  // Another file at the address of an arena that is in use is a conflict, and not that arena.
  KnownArena& known = arenas_[mapping.base];
  if (known.device == mapping.device && known.inode == mapping.inode) {
    if (ArenaHandle arena = known.arena.lock()) return arena;
  }
  gantry_arena* adopted = nullptr;
  RETURN_IF_ERROR(Take(gantry_arena_adopt(lease->client(), mapping.fd.get(), mapping.bytes,
                                          reinterpret_cast<void*>(mapping.base), &adopted)));
  ArenaHandle arena(adopted, DestroysHandle());
  known = {mapping.device, mapping.inode, arena};
  return arena;
}

}  // namespace gantry::nixl
