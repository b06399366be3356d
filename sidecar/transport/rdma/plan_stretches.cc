#include "sidecar/transport/rdma/plan_stretches.h"

#include <algorithm>
#include <utility>

namespace gantry::transport {

PlanStretches::PlanStretches(const MovePlan& plan, const RdmaRegistrar* registrar)
    : plan_(plan), registrar_(registrar), known_(plan.local.size()) {
  uint32_t chunks = 0;
  for (const RemoteAllocation& remote : plan.remote) {
    const RdmaRemoteBuffer* const buffer = RdmaRemoteBuffer::Of(remote);
    buffers_.push_back(buffer);
    first_chunk_.push_back(chunks);
    if (buffer != nullptr) chunks += static_cast<uint32_t>(buffer->chunks().size());
  }
}

LocalStretch PlanStretches::Local(uint32_t allocation, uint64_t offset) const {
  std::map<uint64_t, Run>& runs = known_[allocation];
  const auto next = runs.upper_bound(offset);
  uint64_t free_from = 0;
  if (next != runs.begin()) {
    const auto& [begin, run] = *std::prev(next);
    const uint64_t within = offset - begin;
    if (within < run.length) return {run.address + within, run.region, run.length - within};
    free_from = begin + run.length;
  }
  RdmaRegistrar::Found found = registrar_->Find(*plan_.local[allocation], offset);
  if (found.set == nullptr) return {};
  const MemoryRegionSet::Chunk& chunk = found.set->list()[found.chunk];
  const auto [number, is_new] =
      numbers_.try_emplace(&chunk, static_cast<uint32_t>(regions_.size()));
  if (is_new) regions_.push_back({std::move(found.set), found.chunk});
  // As much of the region as no other one is known for.
  const uint64_t begin = std::max(free_from, offset - found.offset);
  uint64_t length = chunk.length - found.offset + (offset - begin);
  if (next != runs.end()) length = std::min(length, next->first - begin);
  const uint64_t address = chunk.address + found.offset - (offset - begin);
  runs.emplace(begin, Run{address, length, number->second});
  return {address + (offset - begin), number->second, length - (offset - begin)};
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
