// One peer's buffers that are described here, mapped if bytes move from here, with their uses. A
// buffer is retired when it is revoked or replaced, or when its peer is gone. It is not handed out
// again, and is dropped when all handles acquired with it are gone. Thread-safe; handles may
// outlive the cache.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "sidecar/remote/peer_gateway.h"

namespace gantry::peer {

class RemoteBufferCache {
 public:
  using Handle = std::shared_ptr<const engine::RemoteBuffer>;

  // `on_unused` runs when a retired buffer becomes unused, on the thread that drops the last
  // handle. The cache may be gone then. It must not block.
  explicit RemoteBufferCache(std::function<void()> on_unused);

  // Sets (*handles)[i] for each cached reference of the wanted generation that suits `use`. Returns
  // the indices of the others.
  std::vector<size_t> Acquire(const std::vector<wire::BufferReference>& references,
                              engine::RemoteUse use, std::vector<Handle>* handles);

  // Retires an earlier buffer of this name. `lease` is released after the mappings.
  void Add(engine::RemoteBuffer buffer, std::shared_ptr<const void> lease);

  // From `stop_at` on, TakeDue reports transfers that still use the buffer, with `why`.
  void Retire(uint64_t generation, TimePoint stop_at, const Error& why);
  void RetireAll(TimePoint stop_at, const Error& why);
  // True when a buffer of this generation, retired or not, may still be mapped.
  bool Holds(uint64_t generation) const;

  struct Entry;
  struct Due {
    std::vector<std::shared_ptr<Entry>> unused;  // removed from the cache: destroying them unmaps
    struct Overdue {
      Handle buffer;
      Error why;
    };
    std::vector<Overdue> overdue;   // still in use past their time; reported again by each call
    std::optional<TimePoint> next;  // when the next one becomes overdue
  };
  Due TakeDue(TimePoint now);

  size_t size() const;                // not retired
  size_t retired() const;             // not dropped yet
  size_t mapped_allocations() const;  // of both, each counted once

 private:
  struct Table;
  struct Use;

  const std::shared_ptr<Table> table_;
};

}  // namespace gantry::peer
