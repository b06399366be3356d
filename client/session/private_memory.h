// Memory of the caller that becomes arenas in place, private or shared with others already, and who
// still holds each. Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "client/memory/arena.h"
#include "client/session/memory_locator.h"
#include "lib/base/mutex.h"
#include "lib/base/result.h"

namespace gantry::client {

class PrivateMemory {
 public:
  // Makes the first `bytes` of a memfd, which are mapped at the address, an arena.
  using AddArena =
      std::function<Result<std::shared_ptr<Arena>>(int fd, uint64_t bytes, void* address)>;
  // `locator` outlives it.
  PrivateMemory(MemoryLocator& locator, AddArena add_arena)
      : locator_(locator), add_arena_(std::move(add_arena)) {}

  enum class Kind { kBlockOfMalloc, kPartOfBlock, kOwnMapping };
  // Adopts memory in place, and adds a holder to its arena. Null: the memory is in arenas that
  // others made or on a GPU, and needs no adoption.
  Result<std::shared_ptr<Arena>> Adopt(void* address, uint64_t bytes, Kind kind) EXCLUDES(mutex_);
  // Returns true when no holder is left: the arena is out of the table, and is to be closed.
  bool EndHold(Arena& arena) EXCLUDES(mutex_);

 private:
  static Result<std::shared_ptr<Arena>> HoldAgain(const std::vector<Extent>& extents);
  Result<std::shared_ptr<Arena>> AdoptShared(uintptr_t address, uint64_t bytes);

  MemoryLocator& locator_;
  const AddArena add_arena_;
  Mutex mutex_;  // also while pages are replaced
};

}  // namespace gantry::client
