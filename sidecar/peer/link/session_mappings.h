// The mappings of a session's allocations here, as long as a buffer uses them. For one thread at a
// time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "sidecar/memory/mapped_allocation.h"

namespace gantry::peer {

class SessionMappings {
 public:
  using Key = std::pair<uint64_t, bool>;  // allocation id, writable
  using Mapping = std::shared_ptr<const memory::MappedAllocation>;

  // Null: nothing uses such a mapping.
  Mapping Find(const Key& key) const {
    const auto found = mappings_.find(key);
    return found == mappings_.end() ? nullptr : found->second.lock();
  }

  void Add(const Key& key, const Mapping& mapping) {
    if (mappings_.size() >= prune_at_) {
      std::erase_if(mappings_, [](const auto& item) { return item.second.expired(); });
      prune_at_ = 2 * mappings_.size() + kPruneMin;
    }
    mappings_[key] = mapping;
  }

 private:
  static constexpr size_t kPruneMin = 256;

  std::map<Key, std::weak_ptr<const memory::MappedAllocation>> mappings_;
  size_t prune_at_ = kPruneMin;
};

}  // namespace gantry::peer
