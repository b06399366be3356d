// The buffers of one peer that are described here, mapped if bytes are moved from here, and their
// uses. A buffer is retired when it was revoked, replaced or its peer is gone: nobody gets it any
// more, and it is dropped when nobody has a handle any more of those that were given out with its
// own. Thread-safe; outlived by the handles that it gave out.
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

  // `on_unused` runs when a retired buffer is not used any more, on the thread that let go of the
  // last handle, possibly after the cache is gone: it must not block.
  explicit RemoteBufferCache(std::function<void()> on_unused);

  // Sets (*handles)[i] for each reference that is here, of the wanted generation and fit for the
  // use; returns the indices of the others.
  std::vector<size_t> Acquire(const std::vector<wire::BufferReference>& references,
                              engine::RemoteUse use, std::vector<Handle>* handles);

  // Replaces (retires) what was there under this name. `lease` is let go of after the mappings.
  void Add(engine::RemoteBuffer buffer, std::shared_ptr<const void> lease);

  // From stop_at on, transfers that still use the buffer are to be stopped, with `why`.
  void Retire(uint64_t generation, TimePoint stop_at, const Error& why);
  void RetireAll(TimePoint stop_at, const Error& why);
  // Whether a buffer of this generation, retired or not, may still be mapped.
  bool Holds(uint64_t generation) const;

  struct Entry;
  struct Due {
    std::vector<std::shared_ptr<Entry>> unused;  // taken out: destroying them unmaps
    struct Overdue {
      Handle buffer;
      Error why;
    };
    std::vector<Overdue> overdue;   // in use past their time; asked again, they are here again
    std::optional<TimePoint> next;  // when the next one is overdue
  };
  Due TakeDue(TimePoint now);

  size_t size() const;                // usable
  size_t retired() const;             // not dropped yet
  size_t mapped_allocations() const;  // of both, each counted once

 private:
  struct Shelf;
  struct Use;

  const std::shared_ptr<Shelf> shelf_;
};

}  // namespace gantry::peer
