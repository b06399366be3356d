#include "connectors/nixl/agent/local_memory.h"

#include <vector>

#include "connectors/nixl/agent/plugin_log.h"
#include "connectors/nixl/agent/shared_mapping.h"
#include "lib/base/random_id.h"

namespace gantry::nixl {
namespace {

Result<BufferHandle> RegisterBuffer(gantry_client* client, const MemoryCard& card,
                                    uint32_t access) {
  const gantry_piece piece = {reinterpret_cast<const void*>(card.base), card.bytes};
  gantry_buffer_spec spec = {};
  spec.name = card.buffer.c_str();
  spec.pieces = &piece;
  spec.piece_count = 1;
  spec.access = access;
  gantry_buffer* buffer = nullptr;
  RETURN_IF_ERROR(Take(gantry_buffers_register(client, &spec, 1, &buffer)));
  return BufferHandle(buffer, DestroysHandle());
}

}  // namespace

BufferHandle LocalMemory::BufferAt(const std::shared_ptr<Lease>& lease) const {
  const MutexLock lock(mutex_);
  return lease_ == lease ? buffer_ : nullptr;
}

std::string LocalMemoryTable::NamePrefix() { return "m" + HexOf(RandomGeneration()) + "."; }

Result<LocalMemoryPointer> LocalMemoryTable::Register(const std::shared_ptr<Lease>& lease,
                                                      const BasicDesc& memory, MemoryType type) {
  const MutexLock lock(mutex_);
  auto made = std::make_shared<LocalMemory>(
      MemoryCard{prefix_ + std::to_string(made_++), memory.address, memory.bytes}, type);
  RETURN_IF_ERROR(Bind(lease, *made));
  all_.emplace(made->card().buffer, made);
  return made;
}

void LocalMemoryTable::Unregister(const LocalMemoryPointer& memory) {
  BufferHandle buffer;
  ArenaHandle arena;
  const MutexLock lock(mutex_);
  all_.erase(memory->card().buffer);
  const MutexLock inner(memory->mutex_);
  memory->lease_ = nullptr;
  buffer.swap(memory->buffer_);
  arena.swap(memory->arena_);
  if (buffer == nullptr) return;
  if (const Status done = Take(gantry_buffer_unregister(buffer.get(), 1'000)); !done)
    plugin_log::Warning("memory is not unregistered yet", done.error());
}

void LocalMemoryTable::RegisterAll(const std::shared_ptr<Lease>& lease) {
  const MutexLock lock(mutex_);
  for (const auto& [name, memory] : all_) {
    const MutexLock inner(memory->mutex_);
    memory->lease_ = nullptr;
    memory->buffer_ = nullptr;
    memory->arena_ = nullptr;
  }
  arenas_.clear();
  for (const auto& [name, memory] : all_) {
    if (const Status bound = Bind(lease, *memory); !bound)
      plugin_log::Warning("memory is not registered again", bound.error());
  }
}

Status LocalMemoryTable::Bind(const std::shared_ptr<Lease>& lease, LocalMemory& memory) {
  ArenaHandle arena;
  if (memory.type() == MemoryType::kDram) {
    ASSIGN_OR_RETURN(arena, ArenaOf(lease, memory.card()));
  }
  auto buffer =
      RegisterBuffer(lease->client(), memory.card(), GANTRY_REMOTE_READ | GANTRY_REMOTE_WRITE);
  if (!buffer && buffer.error().code == ErrorCode::kFdReadOnly)
    buffer = RegisterBuffer(lease->client(), memory.card(), GANTRY_REMOTE_READ);
  if (!buffer) return Fail(std::move(buffer).error());
  const MutexLock lock(memory.mutex_);
  memory.lease_ = lease;
  memory.arena_ = std::move(arena);
  memory.buffer_ = *std::move(buffer);
  return {};
}

Result<ArenaHandle> LocalMemoryTable::ArenaOf(const std::shared_ptr<Lease>& lease,
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
