#include "sidecar/worker/process/mapping_table.h"

#include <string>
#include <thread>
#include <utility>

namespace gantry::worker {

MappingTable::MappingTable() : slots_(kMappingSlots) {}

MappingTable::~MappingTable() {
  for (std::atomic<Entry*>& slot : slots_) delete slot.load();
}

Status MappingTable::Add(memory::MappingId id, memory::HostMapping mapping,
                         std::unique_ptr<gpu::GpuHostMemory> pinned) {
  MappedBytes bytes{mapping.data(), mapping.size(), mapping.writable(), mapping.may_shrink()};
  if (pinned != nullptr) bytes.pinned = pinned->range().base;
  return Add(id, std::make_unique<Entry>(
                     Entry{id.generation, std::move(mapping), bytes, std::move(pinned)}));
}

Status MappingTable::Add(memory::MappingId id, memory::GpuMapping mapping, bool writable) {
  auto entry = std::make_unique<Entry>(Entry{id.generation, std::move(mapping), {}, nullptr});
  const auto& kept = std::get<memory::GpuMapping>(entry->mapping);
  entry->bytes = {nullptr, kept.size(), writable, /*may_shrink=*/false, &kept};
  return Add(id, std::move(entry));
}

Status MappingTable::Add(memory::MappingId id, std::unique_ptr<Entry> entry) {
  if (id.slot >= kMappingSlots || id.generation == 0) {
    return Fail(ErrorCode::kInvalidArgument, "no mapping slot " + std::to_string(id.slot));
  }
  if (slots_[id.slot].load() != nullptr) {
    return Fail(ErrorCode::kConflict, "mapping slot " + std::to_string(id.slot) + " is taken");
  }
  slots_[id.slot].store(entry.release());
  ++size_;
  return {};
}

Status MappingTable::Remove(memory::MappingId id) {
  Entry* const found = id.slot < kMappingSlots ? slots_[id.slot].load() : nullptr;
  if (found == nullptr || found->generation != id.generation) {
    return Fail(ErrorCode::kStaleGeneration, "mapping slot " + std::to_string(id.slot) +
                                                 " does not hold generation " +
                                                 std::to_string(id.generation));
  }
  slots_[id.slot].store(nullptr);
  --size_;
  WaitUntilUnused(found);
  std::unique_ptr<Entry> entry(found);
  Status forgotten = entry->pinned == nullptr ? Status() : entry->pinned->Unregister();
  if (forgotten) return {};
  static_cast<void>(entry.release());  // it is mapped for as long as this process lives
  forgotten.error().message += ": the memory stays mapped";
  return forgotten;
}

std::optional<MappedBytes> MappingTable::Find(memory::MappingId id) const {
  const Entry* entry = id.slot < kMappingSlots ? slots_[id.slot].load() : nullptr;
  if (entry == nullptr || entry->generation != id.generation) return std::nullopt;
  return entry->bytes;
}

std::optional<MappedBytes> MappingTable::Protect(size_t guard, memory::MappingId id) {
  if (id.slot >= kMappingSlots) return std::nullopt;
  const std::atomic<Entry*>& slot = slots_[id.slot];
  const Entry* entry = slot.load();
  // Store, then look again; Remove empties the slot, then looks here. One of the two sees the
  // other, as both are sequentially consistent.
  while (protected_[guard].load(std::memory_order_relaxed) != entry) {
    protected_[guard].store(entry);
    entry = slot.load();
  }
  if (entry == nullptr || entry->generation != id.generation) return std::nullopt;
  return entry->bytes;
}

void MappingTable::Release(size_t guard) {
  protected_[guard].store(nullptr, std::memory_order_release);
}

void MappingTable::WaitUntilUnused(const Entry* entry) const {
  for (const std::atomic<const Entry*>& used : protected_) {
    while (used.load() == entry) std::this_thread::sleep_for(microseconds(50));
  }
}

}  // namespace gantry::worker
