#include "client/session/private_memory.h"

#include <algorithm>

#include "client/memory/malloc_block.h"
#include "client/memory/private_pages.h"
#include "lib/host/mapped_file.h"

namespace gantry::client {
namespace {

Result<ByteRange> PagesOf(uint64_t address, uint64_t bytes, PrivateMemory::Kind kind) {
  switch (kind) {
    case PrivateMemory::Kind::kOwnMapping:
      return PagesOfMapping(address, bytes);
    case PrivateMemory::Kind::kPartOfBlock:
      return PagesAroundPart(address, bytes);
    case PrivateMemory::Kind::kBlockOfMalloc:
      break;
  }
  return PagesOfBlock(address, bytes);
}

}  // namespace

Result<std::shared_ptr<Arena>> PrivateMemory::HoldAgain(const std::vector<Extent>& extents) {
  const auto is_adopted = [](const Extent& extent) { return extent.arena->holders > 0; };
  if (std::none_of(extents.begin(), extents.end(), is_adopted)) return nullptr;
  const std::shared_ptr<Arena>& arena = extents.front().arena;
  RETURN_IF_ERROR(CheckStillThere(extents));
  if (extents.size() > 1) {
    return Fail(ErrorCode::kConflict, "the block spans several that are adopted",
                "adopt a block whole, before parts of it", "address");
  }
  ++arena->holders;
  return arena;
}

Result<std::shared_ptr<Arena>> PrivateMemory::Adopt(void* address, uint64_t bytes, Kind kind) {
  MutexLock lock(mutex_);
  const auto extents = locator_.arenas().Resolve(address, bytes);
  if (extents) return HoldAgain(*extents);
  const auto located = locator_.Locate(address, bytes);
  if (located) return nullptr;
  if (located.error().code != ErrorCode::kNotExportable) return Fail(located.error());
  const auto at = reinterpret_cast<uintptr_t>(address);
  if (IsSharedMapping(at)) return AdoptShared(at, bytes);
  ASSIGN_OR_RETURN(const ByteRange pages, PagesOf(at, bytes, kind));
  ASSIGN_OR_RETURN(const SharedPages shared, SharePages(pages));
  ASSIGN_OR_RETURN(auto arena, add_arena_(shared.fd.get(), shared.bytes,
                                          reinterpret_cast<void*>(shared.address)));
  arena->holders = 1;
  return arena;
}

// Memory that is shared already, with this or another process, is adopted by its file.
Result<std::shared_ptr<Arena>> PrivateMemory::AdoptShared(uintptr_t address, uint64_t bytes) {
  auto shared = host::FindSharedMapping(
      address, bytes,
      "pass a descriptor of it to gantry_arena_adopt (adopt(fd, address=)), or allocate an arena "
      "(gantry_arena_create, Client.arena)");
  if (!shared) return Fail(std::move(shared).error().WithField("address"));
  ASSIGN_OR_RETURN(auto arena, add_arena_(shared->fd.get(), shared->bytes,
                                          reinterpret_cast<void*>(shared->base)));
  arena->holders = 1;
  return arena;
}

bool PrivateMemory::EndHold(Arena& arena) {
  MutexLock lock(mutex_);
  if (--arena.holders > 0) return false;
  locator_.arenas().Remove(arena);  // so that the next one that adopts it does not rely on it
  return true;
}

}  // namespace gantry::client
