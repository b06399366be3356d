#include "sidecar/peer/link/remote_buffer_cache.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "lib/base/mutex.h"

namespace gantry::peer {
namespace {

struct BufferKey {
  std::string_view workload;
  std::string_view buffer;

  bool operator==(const BufferKey&) const = default;
};

struct BufferKeyHash {
  size_t operator()(const BufferKey& key) const {
    const std::hash<std::string_view> hash;
    return hash(key.workload) * 31 + hash(key.buffer);
  }
};

BufferKey KeyOf(const wire::BufferReference& reference) {
  return {reference.workload, reference.buffer};
}

}  // namespace

// `lease` before `buffer`: mappings go first.
struct RemoteBufferCache::Entry {
  std::shared_ptr<const void> lease;
  // Guarded by the table's mutex:
  size_t uses = 0;  // how often it is in Use objects; the table keeps an entry that is in one
  bool retired = false;
  TimePoint stop_at = TimePoint::max();

  engine::RemoteBuffer buffer;
  Error why;  // guarded likewise
};

struct RemoteBufferCache::Table {
  explicit Table(std::function<void()> on_unused_in) : on_unused(std::move(on_unused_in)) {}

  void Retire(const std::shared_ptr<Entry>& entry, TimePoint stop_at, const Error& why)
      REQUIRES(mutex) {
    if (entry->retired && entry->stop_at <= stop_at) return;
    if (!entry->retired) retired.push_back(entry);
    entry->retired = true;
    entry->stop_at = stop_at;
    entry->why = why;
  }
  void Forget(const std::shared_ptr<Entry>& entry) REQUIRES(mutex) {
    auto [it, end] = by_generation.equal_range(entry->buffer.reference.generation);
    while (it != end && it->second != entry) ++it;
    if (it != end) by_generation.erase(it);
  }
  const std::function<void()> on_unused;

  mutable Mutex mutex;
  // Keys point into their entry's reference.
  std::unordered_map<BufferKey, std::shared_ptr<Entry>, BufferKeyHash> usable GUARDED_BY(mutex);
  std::vector<std::shared_ptr<Entry>> retired GUARDED_BY(mutex);
  // Both. Two of one generation: the older one was retired when the stream to its peer broke, or
  // when the buffer was mapped that had only been named.
  std::unordered_multimap<uint64_t, std::shared_ptr<Entry>> by_generation GUARDED_BY(mutex);
};

// What handles that were given out together share: as long as it lives, their buffers are in use.
// One for each buffer would be as many allocations for each transfer.
struct RemoteBufferCache::Use {
  explicit Use(std::shared_ptr<Table> table_in) : table(std::move(table_in)) {}
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;
  ~Use() {
    bool unused = false;
    {
      const MutexLock lock(table->mutex);
      for (Entry* entry : entries) unused |= --entry->uses == 0 && entry->retired;
    }
    if (unused) table->on_unused();
  }

  // REQUIRES the table's mutex.
  static Handle Add(const std::shared_ptr<Use>& use, Entry* entry) {
    use->entries.push_back(entry);
    ++entry->uses;
    return {use, &entry->buffer};
  }

  const std::shared_ptr<Table> table;
  std::vector<Entry*> entries;
};

RemoteBufferCache::RemoteBufferCache(std::function<void()> on_unused)
    : table_(std::make_shared<Table>(std::move(on_unused))) {}

std::vector<size_t> RemoteBufferCache::Acquire(const std::vector<wire::BufferReference>& references,
                                               engine::RemoteUse use,
                                               std::vector<Handle>* handles) {
  std::vector<size_t> missing;
  handles->assign(references.size(), nullptr);  // before the lock: letting go takes it
  const auto together = std::make_shared<Use>(table_);
  together->entries.reserve(references.size());
  const MutexLock lock(table_->mutex);
  for (size_t i = 0; i < references.size(); ++i) {
    const auto usable = table_->usable.find(KeyOf(references[i]));
    Entry* const found = usable == table_->usable.end() ? nullptr : usable->second.get();
    const uint64_t generation = references[i].generation;
    const uint64_t life = references[i].workload_generation;
    if (found == nullptr || (generation != 0 && generation != found->buffer.reference.generation) ||
        (life != 0 && life != found->buffer.workload_generation) ||
        (use == engine::RemoteUse::kMove && !found->buffer.mapped)) {
      missing.push_back(i);
    } else {
      (*handles)[i] = Use::Add(together, found);
    }
  }
  return missing;
}

void RemoteBufferCache::Add(engine::RemoteBuffer buffer, std::shared_ptr<const void> lease) {
  auto entry = std::make_shared<Entry>();
  entry->lease = std::move(lease);
  entry->buffer = std::move(buffer);
  const MutexLock lock(table_->mutex);
  const BufferKey key = KeyOf(entry->buffer.reference);
  if (const auto found = table_->usable.find(key); found != table_->usable.end()) {
    table_->Retire(found->second, TimePoint::max(),
                   Error(ErrorCode::kStaleGeneration, "the buffer was registered anew"));
    table_->usable.erase(found);
  }
  table_->by_generation.emplace(entry->buffer.reference.generation, entry);
  table_->usable.emplace(key, std::move(entry));
}

void RemoteBufferCache::Retire(uint64_t generation, TimePoint stop_at, const Error& why) {
  const MutexLock lock(table_->mutex);
  const auto [begin, end] = table_->by_generation.equal_range(generation);
  for (auto it = begin; it != end; ++it) {
    const std::shared_ptr<Entry>& entry = it->second;
    const auto found = table_->usable.find(KeyOf(entry->buffer.reference));
    if (found != table_->usable.end() && found->second == entry) table_->usable.erase(found);
    table_->Retire(entry, stop_at, why);
  }
}

void RemoteBufferCache::RetireAll(TimePoint stop_at, const Error& why) {
  const MutexLock lock(table_->mutex);
  for (const auto& entry : table_->retired) table_->Retire(entry, stop_at, why);
  for (const auto& [key, entry] : table_->usable) table_->Retire(entry, stop_at, why);
  table_->usable.clear();
}

bool RemoteBufferCache::Holds(uint64_t generation) const {
  const MutexLock lock(table_->mutex);
  return table_->by_generation.contains(generation);
}

RemoteBufferCache::Due RemoteBufferCache::TakeDue(TimePoint now) {
  Due due;
  const MutexLock lock(table_->mutex);
  std::erase_if(table_->retired, [&](const std::shared_ptr<Entry>& entry) {
    if (entry->uses != 0) return false;
    due.unused.push_back(entry);
    return true;
  });
  for (const auto& entry : due.unused) table_->Forget(entry);
  for (const auto& entry : table_->retired) {
    if (entry->stop_at <= now) {
      due.overdue.push_back({Use::Add(std::make_shared<Use>(table_), entry.get()), entry->why});
    } else if (entry->stop_at != TimePoint::max()) {
      due.next = std::min(due.next.value_or(entry->stop_at), entry->stop_at);
    }
  }
  return due;
}

size_t RemoteBufferCache::size() const {
  const MutexLock lock(table_->mutex);
  return table_->usable.size();
}

size_t RemoteBufferCache::retired() const {
  const MutexLock lock(table_->mutex);
  return table_->retired.size();
}

size_t RemoteBufferCache::mapped_allocations() const {
  std::set<const memory::MappedAllocation*> mapped;
  const MutexLock lock(table_->mutex);
  const auto add = [&](const Entry& entry) {
    for (const auto& allocation : entry.buffer.allocations) {
      if (allocation.mapped != nullptr) mapped.insert(allocation.mapped.get());
    }
  };
  for (const auto& [generation, entry] : table_->by_generation) add(*entry);
  return mapped.size();
}

}  // namespace gantry::peer
