#include "client/session/private_memory.h"

#include <algorithm>

#include "client/memory/private_pages.h"
#include "client/memory/range_text.h"

namespace gantry::client {

Result<std::shared_ptr<Arena>> PrivateMemory::HoldAgain(const std::vector<Extent>& extents) {
  const auto is_adopted = [](const Extent& extent) { return extent.arena->holders > 0; };
  if (std::none_of(extents.begin(), extents.end(), is_adopted)) return nullptr;
  const std::shared_ptr<Arena>& arena = extents.front().arena;
  const auto address = reinterpret_cast<uintptr_t>(arena->data());
  if (!ShowsFile(arena->fd(), address, arena->bytes())) {
    return Fail(ErrorCode::kStaleGeneration,
                "the memory at " + RangeText(address, arena->bytes()) +
                    " was freed or mapped anew while it was adopted",
                "unregister the buffers in it, and close its arena, before it is freed", "address");
  }
  if (extents.size() > 1) {
    return Fail(ErrorCode::kConflict, "the block spans several that are adopted",
                "adopt a block whole, before parts of it", "address");
  }
  ++arena->holders;
  return arena;
}

Result<std::shared_ptr<Arena>> PrivateMemory::Adopt(void* address, uint64_t bytes) {
  MutexLock lock(mutex_);
  const auto extents = locator_.arenas().Resolve(address, bytes);
  if (extents) return HoldAgain(*extents);
  if (locator_.Locate(address, bytes)) return nullptr;
  ASSIGN_OR_RETURN(const ByteRange pages,
                   PagesOfBlock(reinterpret_cast<uintptr_t>(address), bytes));
  ASSIGN_OR_RETURN(const SharedPages shared, SharePages(pages));
  ASSIGN_OR_RETURN(auto arena, add_arena_(shared.fd.get(), shared.bytes,
                                          reinterpret_cast<void*>(shared.address)));
  arena->holders = 1;
  return arena;
}

bool PrivateMemory::EndHold(Arena& arena) {
  MutexLock lock(mutex_);
  return --arena.holders == 0;
}

}  // namespace gantry::client
