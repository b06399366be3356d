// The buffers of a sidecar that its peers' requests may name: what tests put there, for any
// session. Thread-safe.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lib/base/mutex.h"
#include "sidecar/transport/target_buffers.h"
#include "tests/fakes/test_arena.h"

namespace gantry::transport {

using gantry::testing::TestArena;

inline std::shared_ptr<const memory::MappedAllocation> AllocationOf(memory::MemoryMapper& mapper,
                                                                    const TestArena& arena,
                                                                    bool writable = true) {
  memory::AllocationSource source;
  source.fd = std::make_shared<UniqueFd>(writable ? arena.Fd() : arena.ReadOnlyFd());
  source.size = arena.size();
  source.writable = writable;
  return *memory::MappedAllocation::Create(mapper, source);
}

// Of a GPU, with `bytes` bytes; that nothing here reads or writes, so any arena may stand for it.
inline std::shared_ptr<const memory::MappedAllocation> GpuAllocationOf(memory::MemoryMapper& mapper,
                                                                       const TestArena& arena,
                                                                       uint64_t bytes,
                                                                       bool writable = true) {
  memory::AllocationSource source;
  source.kind = wire::MemoryKind::kGpu;
  source.gpu.form = wire::GpuExport::kPiece;
  source.fd = std::make_shared<UniqueFd>(arena.Fd());
  source.size = bytes;
  source.writable = writable;
  return *memory::MappedAllocation::Create(mapper, source);
}

// Buffers by id, as a registry would answer. Thread-safe.
class FakeTargetBuffers final : public TargetBuffers {
 public:
  struct Entry {
    uint64_t generation = 1;
    wire::Access access{true, true};
    memory::PieceMap pieces;
    std::vector<std::shared_ptr<const memory::MappedAllocation>> allocations;
    bool suspended = false;
  };
  void Put(const std::string& id, Entry entry) {
    const MutexLock lock(mutex_);
    entries_[id] = std::move(entry);
  }
  void Change(const std::string& id, const std::function<void(Entry*)>& change) {
    const MutexLock lock(mutex_);
    change(&entries_.at(id));
  }
  void Erase(const std::string& id) {
    const MutexLock lock(mutex_);
    entries_.erase(id);
  }
  int in_use() const { return in_use_.load(); }
  int acquired() const { return acquired_.load(); }

  Result<std::unique_ptr<TargetBuffer>> Acquire(std::string_view, std::string_view id,
                                                uint64_t generation, bool for_write) override {
    const MutexLock lock(mutex_);
    const auto found = entries_.find(std::string(id));
    if (found == entries_.end()) return Fail(ErrorCode::kNotFound, "no such buffer");
    const Entry& entry = found->second;
    if (entry.generation != generation) return Fail(ErrorCode::kStaleGeneration, "replaced");
    if (entry.suspended) return Fail(ErrorCode::kDraining, "suspended");
    if (!(for_write ? entry.access.remote_write : entry.access.remote_read)) {
      return Fail(ErrorCode::kPermissionDenied, "not granted");
    }
    ++acquired_;
    return std::make_unique<Use>(entry, in_use_);
  }

 private:
  class Use final : public TargetBuffer {
   public:
    Use(Entry entry, std::atomic<int>& count) : entry_(std::move(entry)), count_(count) {
      ++count_;
    }
    ~Use() override { --count_; }
    const memory::PieceMap& pieces() const override { return entry_.pieces; }
    const std::vector<std::shared_ptr<const memory::MappedAllocation>>& allocations()
        const override {
      return entry_.allocations;
    }

   private:
    const Entry entry_;
    std::atomic<int>& count_;
  };

  std::atomic<int> in_use_{0};
  std::atomic<int> acquired_{0};
  Mutex mutex_;
  std::map<std::string, Entry> entries_ GUARDED_BY(mutex_);
};

// A buffer of these pieces of allocations.
inline FakeTargetBuffers::Entry BufferOn(
    std::vector<std::shared_ptr<const memory::MappedAllocation>> allocations,
    const std::vector<wire::Piece>& pieces) {
  FakeTargetBuffers::Entry entry;
  std::vector<uint64_t> sizes;
  for (const auto& allocation : allocations) sizes.push_back(allocation->size());
  entry.pieces = *memory::PieceMap::Create(pieces, sizes);
  entry.allocations = std::move(allocations);
  return entry;
}

}  // namespace gantry::transport
