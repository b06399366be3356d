#include "sidecar/transport/rdma/rdma_registrar.h"

#include <utility>

namespace gantry::transport {
namespace {

// Once one is found: another one that begins further ahead may reach further, but not many do.
constexpr int kLookedAtMax = 8;

}  // namespace

Result<std::shared_ptr<const memory::NicMemory>> RdmaRegistrar::Register(
    const std::vector<memory::NicPiece>& pieces, const wire::Access& access) {
  RegionSetOptions options;
  options.relaxed_ordering = devices_.options().relaxed_ordering;
  const std::vector<RegionDevice> on = devices_.RegionDevices();
  ASSIGN_OR_RETURN(std::shared_ptr<const MemoryRegionSet> registered,
                   MemoryRegionSet::Register(on, pieces, access, options));
  const MemoryRegionSet* const set = registered.get();
  // Forgotten here before it is deregistered.
  std::shared_ptr<const MemoryRegionSet> known(
      set, [this, registered = std::move(registered)](const MemoryRegionSet* gone) mutable {
        Remove(*gone);
        registered.reset();
      });
  Add(known);
  return known;
}

void RdmaRegistrar::Add(const std::shared_ptr<const MemoryRegionSet>& set) {
  const MutexLock lock(mutex_);
  for (size_t i = 0; i < set->list().size(); ++i) {
    const MemoryRegionSet::Chunk& chunk = set->list()[i];
    const memory::NicPiece& piece = set->pieces()[chunk.piece];
    const uint64_t begin = piece.offset + chunk.piece_offset;
    allocations_[piece.allocation.get()].emplace(begin,
                                                 Entry{begin + chunk.length, i, set.get(), set});
  }
  chunks_ += set->chunks();
}

void RdmaRegistrar::Remove(const MemoryRegionSet& set) {
  const MutexLock lock(mutex_);
  for (const MemoryRegionSet::Chunk& chunk : set.list()) {
    const memory::NicPiece& piece = set.pieces()[chunk.piece];
    const auto of = allocations_.find(piece.allocation.get());
    auto [begin, end] = of->second.equal_range(piece.offset + chunk.piece_offset);
    while (begin != end && begin->second.set != &set) ++begin;
    of->second.erase(begin);
    if (of->second.empty()) allocations_.erase(of);
  }
  chunks_ -= set.chunks();
}

RdmaRegistrar::Found RdmaRegistrar::Find(const memory::MappedAllocation& allocation,
                                         uint64_t offset) const {
  std::vector<std::shared_ptr<const MemoryRegionSet>> looked_at;  // the last of them locks, too
  Found best;
  const MutexLock lock(mutex_);
  const auto of = allocations_.find(&allocation);
  if (of == allocations_.end()) return {};
  uint64_t best_end = offset;
  auto it = of->second.upper_bound(offset);
  for (int looked = 0; it != of->second.begin(); ++looked) {
    --it;
    if (best.set != nullptr && looked >= kLookedAtMax) break;
    if (it->second.end <= best_end) continue;
    auto set = it->second.held.lock();
    if (set == nullptr) continue;  // it is about to be removed
    looked_at.push_back(set);
    best_end = it->second.end;
    best = {std::move(set), it->second.chunk, offset - it->first};
  }
  return best;
}

bool RdmaRegistrar::Knows(const memory::MappedAllocation& allocation) const {
  const MutexLock lock(mutex_);
  return allocations_.contains(&allocation);
}

size_t RdmaRegistrar::chunks() const {
  const MutexLock lock(mutex_);
  return chunks_;
}

}  // namespace gantry::transport
