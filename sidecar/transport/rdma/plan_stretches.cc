#include "sidecar/transport/rdma/plan_stretches.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace gantry::transport {

PlanStretches::PlanStretches(const MovePlan& plan) : runs_(plan.local.size()) {
  AddLocal(plan);
  uint32_t chunks = 0;
  for (const RemoteAllocation& remote : plan.remote) {
    const RdmaRemoteBuffer* const buffer = RdmaRemoteBuffer::Of(remote);
    buffers_.push_back(buffer);
    first_chunk_.push_back(chunks);
    if (buffer != nullptr) chunks += static_cast<uint32_t>(buffer->chunks().size());
  }
}

// Where the plan's own buffers overlap, either region is as good: the one that begins first has
// what it reaches, the next one the rest.
void PlanStretches::AddLocal(const MovePlan& plan) {
  std::unordered_map<const memory::MappedAllocation*, size_t> places;
  for (size_t i = 0; i < plan.local.size(); ++i) places.emplace(plan.local[i].get(), i);
  std::unordered_set<const memory::NicMemory*> seen;
  for (const auto& nic_memory : plan.local_nic_memory) {
    const auto* const set = dynamic_cast<const MemoryRegionSet*>(nic_memory.get());
    if (set == nullptr || !seen.insert(set).second) continue;
    for (const MemoryRegionSet::Chunk& chunk : set->list()) {
      const memory::NicPiece& piece = set->pieces()[chunk.piece];
      const auto place = places.find(piece.allocation.get());
      if (place == places.end()) continue;
      const uint64_t begin = piece.offset + chunk.piece_offset;
      runs_[place->second].push_back(
          {begin, begin + chunk.length, chunk.address, static_cast<uint32_t>(regions_.size())});
      regions_.push_back({set, &chunk});
    }
  }
  for (std::vector<Run>& runs : runs_) {
    std::sort(runs.begin(), runs.end(), [](const Run& a, const Run& b) {
      return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
    });
    uint64_t covered = 0;
    for (Run& run : runs) {
      const uint64_t begin = std::min(std::max(run.begin, covered), run.end);
      run.address += begin - std::exchange(run.begin, begin);
      covered = std::max(covered, run.end);
    }
    std::erase_if(runs, [](const Run& run) { return run.begin == run.end; });
  }
}

LocalStretch PlanStretches::Local(uint32_t allocation, uint64_t offset) const {
  const std::vector<Run>& runs = runs_[allocation];
  const auto next = std::upper_bound(runs.begin(), runs.end(), offset,
                                     [](uint64_t at, const Run& run) { return at < run.begin; });
  if (next == runs.begin()) return {};
  const Run& run = *std::prev(next);
  if (offset >= run.end) return {};
  return {run.address + (offset - run.begin), run.region, run.end - offset};
}

RemoteStretch PlanStretches::Remote(uint32_t allocation, uint64_t offset) const {
  if (buffers_[allocation] == nullptr) return {};
  const RdmaRemoteBuffer& buffer = *buffers_[allocation];
  if (offset >= buffer.length()) return {};
  const auto [index, begin] = buffer.ChunkOf(offset);
  const wire::RdmaChunk& chunk = buffer.chunks()[index];
  const uint64_t within = offset - begin;
  return {chunk.address + within, first_chunk_[allocation] + static_cast<uint32_t>(index),
          chunk.length - within};
}

size_t PlanStretches::BufferOf(uint32_t chunk) const {
  const auto next = std::upper_bound(first_chunk_.begin(), first_chunk_.end(), chunk);
  return static_cast<size_t>(next - first_chunk_.begin()) - 1;
}

const wire::RdmaChunk& PlanStretches::chunk(uint32_t number) const {
  const size_t of = BufferOf(number);
  return buffers_[of]->chunks()[number - first_chunk_[of]];
}

}  // namespace gantry::transport
