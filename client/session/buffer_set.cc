#include "client/session/buffer_set.h"

#include <algorithm>
#include <iterator>
#include <span>
#include <utility>

namespace gantry::client {
namespace {

// Whether a transfer by a view moves blocks of the pair that is `layer` in its group.
bool Moves(const gantry_transfer_spec& spec, uint64_t group, uint64_t layer) {
  if (spec.range_count != 0) return true;
  if (spec.group_count == 0) return group == 0;
  const auto groups = std::span(spec.groups, spec.group_count);
  return std::any_of(groups.begin(), groups.end(), [&](const gantry_block_group& moved) {
    return moved.group == group &&
           (moved.layer_count == 0 ||
            (layer >= moved.first_layer && layer - moved.first_layer < moved.layer_count));
  });
}

}  // namespace

void BufferSet::Add(const std::vector<BufferPointer>& buffers) {
  MutexLock lock(mutex_);
  for (const BufferPointer& buffer : buffers) {
    buffers_.insert(buffer);
    if (!buffer->on_gpu) continue;
    on_gpu_.insert_or_assign(buffer->name, buffer);
    ++epoch_;
  }
}

void BufferSet::Forget(const BufferPointer& buffer) {
  buffer->registered = false;
  MutexLock lock(mutex_);
  buffers_.erase(buffer);
  const auto found = on_gpu_.find(buffer->name);
  if (found == on_gpu_.end() || found->second != buffer) return;
  on_gpu_.erase(found);
  ++epoch_;
}

void BufferSet::ForgetAll() {
  MutexLock lock(mutex_);
  for (const BufferPointer& buffer : buffers_) buffer->registered = false;
  buffers_.clear();
  on_gpu_.clear();
  ++epoch_;
}

void BufferSet::TakePieces(const std::vector<BufferPointer>& buffers,
                           const std::vector<BufferRequest>& requests) {
  MutexLock lock(mutex_);
  for (size_t i = 0; i < buffers.size(); ++i) TakeGpuPieces(requests[i].pieces, buffers[i].get());
  ++epoch_;
}

std::vector<BufferPointer> BufferSet::In(const Arena& arena) const {
  std::vector<BufferPointer> inside;
  MutexLock lock(mutex_);
  std::copy_if(buffers_.begin(), buffers_.end(), std::back_inserter(inside),
               [&](const BufferPointer& buffer) {
                 const auto is_it = [&](const auto& held) { return held.get() == &arena; };
                 return std::any_of(buffer->arenas.begin(), buffer->arenas.end(), is_it);
               });
  return inside;
}

std::vector<BufferPointer> BufferSet::OnGpu(const std::vector<std::string>* names) const {
  std::vector<BufferPointer> named;
  MutexLock lock(mutex_);
  for (const auto& [name, buffer] : on_gpu_) {
    if (names == nullptr || std::find(names->begin(), names->end(), name) != names->end()) {
      named.push_back(buffer);
    }
  }
  return named;
}

BufferPointer BufferSet::OnGpu(std::string_view name) const {
  MutexLock lock(mutex_);
  const auto found = on_gpu_.find(name);
  return found == on_gpu_.end() ? nullptr : found->second;
}

// All of one epoch, so that each of them is registered, and there.
const ViewRecord::GpuBuffers& BufferSet::GpuBuffersOf(ViewRecord& view) {
  ViewRecord::GpuBuffers& known = view.gpu_buffers();
  if (known.epoch == epoch_) return known;
  known = {};
  std::set<const GpuAllocation*> seen;
  for (const ViewAnswer::Pair& pair : view.answer().pairs) {
    const auto found = on_gpu_.find(pair.local);
    const BufferPointer buffer = found == on_gpu_.end() ? nullptr : found->second;
    known.of_pairs.push_back(buffer);
    if (buffer == nullptr || pair.group != 0) continue;
    const size_t before = seen.size();
    seen.insert(buffer->gpu_allocations.begin(), buffer->gpu_allocations.end());
    if (seen.size() > before) known.for_group_0.push_back(buffer);
  }
  known.epoch = epoch_;
  return known;
}

std::vector<BufferPointer> BufferSet::OnGpuOf(ViewRecord& view, const gantry_transfer_spec& spec) {
  std::vector<BufferPointer> buffers;
  MutexLock lock(mutex_);
  if (on_gpu_.empty()) return buffers;
  const ViewRecord::GpuBuffers& known = GpuBuffersOf(view);
  const auto add = [&](const std::weak_ptr<RegisteredBuffer>& weak) {
    if (BufferPointer buffer = weak.lock()) buffers.push_back(std::move(buffer));
  };
  if (spec.group_count == 0 && spec.range_count == 0) {
    std::for_each(known.for_group_0.begin(), known.for_group_0.end(), add);
    return buffers;
  }
  std::map<uint64_t, uint64_t> layers;  // seen of each group
  for (size_t i = 0; i < known.of_pairs.size(); ++i) {
    const uint64_t group = view.answer().pairs[i].group;
    const uint64_t layer = spec.group_count == 0 ? 0 : layers[group]++;
    if (Moves(spec, group, layer)) add(known.of_pairs[i]);
  }
  return buffers;
}

}  // namespace gantry::client
