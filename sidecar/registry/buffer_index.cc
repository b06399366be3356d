#include "sidecar/registry/buffer_index.h"

#include <algorithm>
#include <utility>

namespace gantry::registry {

void BufferIndex::Publish(RegisteredBuffer registered) {
  const Buffer::Description& description = registered.buffer->description();
  WorkloadBuffers& own = by_workload_[description.workload];
  if (own.generation != description.workload_generation) {
    own.by_name.clear();
    own.generation = description.workload_generation;
  }
  own.by_name[description.name] = registered.buffer;
  own.ids.insert(description.id);
  bytes_ += registered.buffer->length();
  by_id_.emplace(description.id, std::move(registered));
}

RegisteredBuffer BufferIndex::Replace(RegisteredBuffer registered) {
  const Buffer::Description& description = registered.buffer->description();
  by_workload_[description.workload].by_name[description.name] = registered.buffer;
  return std::exchange(by_id_[description.id], std::move(registered));
}

std::vector<std::shared_ptr<AllocationRecord>> BufferIndex::TakeAllocations(std::string_view id) {
  const auto found = by_id_.find(id);
  if (found == by_id_.end()) return {};
  return std::exchange(found->second.allocations, {});
}

void BufferIndex::Unpublish(const Buffer& buffer, TimePoint deadline) {
  const std::string& id = buffer.description().id;
  if (!by_id_.contains(id)) return;
  const auto [removal, is_new] = removals_.try_emplace(id, deadline);
  if (!is_new) removal->second = std::max(removal->second, deadline);
  FreeName(buffer);
}

void BufferIndex::FreeName(const Buffer& buffer) {
  const Buffer::Description& description = buffer.description();
  const auto own = by_workload_.find(description.workload);
  if (own == by_workload_.end()) return;
  const auto named = own->second.by_name.find(description.name);
  if (named != own->second.by_name.end() && named->second.get() == &buffer) {
    own->second.by_name.erase(named);
  }
}

RegisteredBuffer BufferIndex::Erase(std::string_view id) {
  const auto found = by_id_.find(id);
  if (found == by_id_.end()) return {};
  FreeName(*found->second.buffer);
  RegisteredBuffer erased = std::move(found->second);
  by_id_.erase(found);
  const Buffer::Description& description = erased.buffer->description();
  removals_.erase(description.id);
  bytes_ -= erased.buffer->length();
  const auto own = by_workload_.find(description.workload);
  own->second.ids.erase(description.id);
  if (own->second.ids.empty()) by_workload_.erase(own);
  return erased;
}

const RegisteredBuffer* BufferIndex::ById(std::string_view id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : &found->second;
}

std::shared_ptr<Buffer> BufferIndex::ByName(std::string_view workload, uint64_t workload_generation,
                                            std::string_view name) const {
  const auto own = by_workload_.find(workload);
  if (own == by_workload_.end()) return nullptr;
  if (workload_generation != 0 && own->second.generation != workload_generation) return nullptr;
  const auto named = own->second.by_name.find(name);
  return named == own->second.by_name.end() ? nullptr : named->second;
}

const std::shared_ptr<Buffer>* BufferIndex::Named(std::string_view workload,
                                                  std::string_view name) const {
  const auto own = by_workload_.find(workload);
  if (own == by_workload_.end()) return nullptr;
  const auto named = own->second.by_name.find(name);
  return named == own->second.by_name.end() ? nullptr : &named->second;
}

std::vector<std::shared_ptr<Buffer>> BufferIndex::List(std::string_view workload,
                                                       std::string_view cursor,
                                                       size_t limit) const {
  std::vector<std::shared_ptr<Buffer>> list;
  if (workload.empty()) {
    for (auto at = by_id_.upper_bound(cursor); at != by_id_.end() && list.size() < limit; ++at) {
      list.push_back(at->second.buffer);
    }
    return list;
  }
  const auto own = by_workload_.find(workload);
  if (own == by_workload_.end()) return list;
  const Ids& ids = own->second.ids;
  for (auto at = ids.upper_bound(cursor); at != ids.end() && list.size() < limit; ++at) {
    list.push_back(ById(*at)->buffer);
  }
  return list;
}

std::vector<std::shared_ptr<Buffer>> BufferIndex::Overdue(TimePoint now) const {
  std::vector<std::shared_ptr<Buffer>> list;
  for (const auto& [id, deadline] : removals_) {
    if (deadline <= now) list.push_back(ById(id)->buffer);
  }
  return list;
}

}  // namespace gantry::registry
