#include "sidecar/transport/rdma/plan_stretches.h"

#include <algorithm>
#include <utility>

namespace gantry::transport {

PlanStretches::PlanStretches(const MovePlan& plan, const RdmaRegistrar* registrar)
    : plan_(plan), registrar_(registrar) {
  uint32_t chunks = 0;
  for (const RemoteAllocation& remote : plan.remote) {
    const RdmaRemoteBuffer* const buffer = RdmaRemoteBuffer::Of(remote);
    buffers_.push_back(buffer);
    first_chunk_.push_back(chunks);
    if (buffer != nullptr) chunks += static_cast<uint32_t>(buffer->chunks().size());
  }
}

LocalStretch PlanStretches::Local(uint32_t allocation, uint64_t offset) const {
  RdmaRegistrar::Found found = registrar_->Find(*plan_.local[allocation], offset);
  if (found.set == nullptr) return {};
  const MemoryRegionSet::Chunk& chunk = found.set->list()[found.chunk];
  const auto [known, is_new] = numbers_.try_emplace(&chunk, static_cast<uint32_t>(regions_.size()));
  if (is_new) regions_.push_back({std::move(found.set), found.chunk});
  return {chunk.address + found.offset, known->second, chunk.length - found.offset};
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

const wire::RdmaChunk& PlanStretches::chunk(uint32_t number) const {
  const auto next = std::upper_bound(first_chunk_.begin(), first_chunk_.end(), number);
  const auto of = static_cast<size_t>(next - first_chunk_.begin()) - 1;
  return buffers_[of]->chunks()[number - first_chunk_[of]];
}

}  // namespace gantry::transport
