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
  const std::vector<RegionDevice> on =
      devices_.RegionDevices(choose_ ? choose_(pieces) : DeviceSet::All());
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
    Registered& of = allocations_[piece.allocation.get()];
    of.entries.emplace(begin, Entry{begin + chunk.length, i, set.get(), set});
    ++of.chunks[set->devices()];
  }
  chunks_[set->devices()] += set->chunks();
}

void RdmaRegistrar::Remove(const MemoryRegionSet& set) {
  const MutexLock lock(mutex_);
  for (const MemoryRegionSet::Chunk& chunk : set.list()) {
    const memory::NicPiece& piece = set.pieces()[chunk.piece];
    const auto of = allocations_.find(piece.allocation.get());
    auto [begin, end] = of->second.entries.equal_range(piece.offset + chunk.piece_offset);
    while (begin != end && begin->second.set != &set) ++begin;
    of->second.entries.erase(begin);
    const auto chunks = of->second.chunks.find(set.devices());
    if (--chunks->second == 0) of->second.chunks.erase(chunks);
    if (of->second.entries.empty()) allocations_.erase(of);
  }
  chunks_[set.devices()] -= set.chunks();
}

RdmaRegistrar::Found RdmaRegistrar::Find(const memory::MappedAllocation& allocation,
                                         uint64_t offset) const {
  std::vector<std::shared_ptr<const MemoryRegionSet>> looked_at;  // the last of them locks, too
  Found best;
  const MutexLock lock(mutex_);
  const auto of = allocations_.find(&allocation);
  if (of == allocations_.end()) return {};
  uint64_t best_end = offset;
  auto it = of->second.entries.upper_bound(offset);
  for (int looked = 0; it != of->second.entries.begin(); ++looked) {
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

std::vector<DeviceSet> RdmaRegistrar::SetsOf(const memory::MappedAllocation& allocation) const {
  std::vector<DeviceSet> sets;
  const MutexLock lock(mutex_);
  const auto of = allocations_.find(&allocation);
  if (of == allocations_.end()) return sets;
  for (const auto& [devices, chunks] : of->second.chunks) sets.push_back(devices);
  return sets;
}

size_t RdmaRegistrar::chunks(size_t device) const {
  const MutexLock lock(mutex_);
  size_t count = 0;
  for (const auto& [devices, chunks] : chunks_) count += devices.Has(device) ? chunks : 0;
  return count;
}

}  // namespace gantry::transport
