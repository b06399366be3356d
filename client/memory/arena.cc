#include "client/memory/arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <utility>

#include "client/memory/sealed_memfd.h"
#include "lib/base/byte_range.h"
#include "lib/base/random_id.h"
#include "lib/base/range_text.h"
#include "lib/gpu/loaded_gpu_pointers.h"

namespace gantry::client {
namespace {

// Whether something is mapped at every byte of [address, address + bytes). That it is the
// descriptor is the caller's word.
Status CheckMapped(void* address, uint64_t bytes) {
  // msync(2) with this flag writes nothing: it looks at the alignment and for mappings.
  if (::msync(address, bytes, MS_ASYNC) == 0) return {};
  const bool unaligned = errno == EINVAL;
  const std::string where = RangeText(reinterpret_cast<uintptr_t>(address), bytes);
  return Fail(ErrorCode::kInvalidArgument,
              unaligned ? "the arena is said to be at " + where + ", which begins in no page"
                        : "the arena is said to be at " + where + ", where not all is mapped",
              unaligned ? "pass the address at which byte 0 of the descriptor is mapped"
                        : "map as many bytes of the descriptor as the arena has",
              "address");
}

}  // namespace

Result<std::shared_ptr<Arena>> Arena::Map(UniqueFd fd, uint64_t bytes, void* address,
                                          bool writable) {
  const bool map_here = address == nullptr;
  const auto unmap = [bytes](void* mapped) { ::munmap(mapped, bytes); };
  std::unique_ptr<void, decltype(unmap)> mapped(nullptr, unmap);
  if (map_here) {
    const int protection = writable ? PROT_READ | PROT_WRITE : PROT_READ;
    address = ::mmap(nullptr, bytes, protection, MAP_SHARED, fd.get(), 0);
    if (address == MAP_FAILED) {
      return Fail(SystemError(ErrorCode::kResourceExhausted, "mapping an arena", errno));
    }
    mapped.reset(address);
    ::madvise(address, bytes, MADV_HUGEPAGE);
    // Fills the page tables, and takes no pages: of a sparse file that fits nowhere, it would call
    // the out-of-memory killer. It is no error where it is not known.
    if (HasEveryPage(fd.get(), bytes)) {
      ::madvise(address, bytes, writable ? MADV_POPULATE_WRITE : MADV_POPULATE_READ);
    }
  }
  uint64_t end = 0;
  if (!EndOf(reinterpret_cast<uintptr_t>(address), bytes, &end)) {
    return Fail(ErrorCode::kInvalidArgument, "the arena would wrap around the address space", {},
                "address");
  }
  if (!map_here) RETURN_IF_ERROR(CheckMapped(address, bytes));
  std::unique_ptr<Arena> arena(
      new Arena(std::move(fd), static_cast<std::byte*>(address), bytes, map_here, writable));
  static_cast<void>(mapped.release());
  return std::shared_ptr<Arena>(std::move(arena));
}

Arena::Arena(UniqueFd fd, std::byte* data, uint64_t bytes, bool mapped_here, bool writable)
    : fd_(std::move(fd)),
      data_(data),
      bytes_(bytes),
      mapped_here_(mapped_here),
      writable_(writable) {}

Arena::~Arena() {
  bool unpinned = true;
  {
    MutexLock lock(mutex_);
    if (pin_ != nullptr) {
      // Memory of the caller's own may be unmapped, or other memory, by now: when the arena was
      // closed was the time to unpin it.
      unpinned = mapped_here_ && pin_->UnpinQuietly();
      if (!unpinned) pin_->Abandon();
    }
  }
  // What a GPU still reaches stays for good: the address must not become other memory.
  if (mapped_here_ && unpinned) ::munmap(data_, bytes_);
}

Result<gpu::DeviceAddress> Arena::Pin(int device) {
  if (!writable_) {
    return Fail(ErrorCode::kFdReadOnly, "an arena that cannot be written to is not pinned",
                "adopt a descriptor that is open for reading and writing");
  }
  MutexLock lock(mutex_);
  if (closed) return Fail(ErrorCode::kUnregistered, "the arena is closed");
  if (pin_ != nullptr && pinned_for_ != device) {
    return Fail(ErrorCode::kConflict,
                "the arena is pinned for GPU " + std::to_string(pinned_for_) + " of this process",
                "every GPU copies to and from it as pinned memory; to have the address of another "
                "one, unpin it first",
                "device");
  }
  if (pin_ == nullptr) {
    ASSIGN_OR_RETURN(const auto on, gpu::OpenWorkloadDevice(device));
    ASSIGN_OR_RETURN(pin_, on->Pin(data_, bytes_));
    pinned_for_ = device;
  }
  return pin_->range().base;
}

Status Arena::Unpin() {
  MutexLock lock(mutex_);
  if (pin_ == nullptr) return {};
  RETURN_IF_ERROR(pin_->Unpin());
  pin_.reset();
  return {};
}

void Arena::UnpinQuietly() noexcept {
  MutexLock lock(mutex_);
  if (pin_ != nullptr && pin_->UnpinQuietly()) pin_.reset();
}

Status ArenaTable::Add(std::shared_ptr<Arena> arena) {
  const auto start = reinterpret_cast<uintptr_t>(arena->data());
  MutexLock lock(mutex_);
  const auto next = by_address_.lower_bound(start);
  const bool hits_next = next != by_address_.end() && next->first - start < arena->bytes();
  const bool hits_previous = next != by_address_.begin() &&
                             start - std::prev(next)->first < std::prev(next)->second->bytes();
  if (hits_next || hits_previous) {
    return Fail(ErrorCode::kConflict,
                "another arena has a part of the addresses " + RangeText(start, arena->bytes()),
                "adopt each mapping once", "address");
  }
  by_address_.emplace(start, std::move(arena));
  return {};
}

void ArenaTable::Remove(const Arena& arena) {
  MutexLock lock(mutex_);
  const auto found = by_address_.find(reinterpret_cast<uintptr_t>(arena.data()));
  if (found != by_address_.end() && found->second.get() == &arena) by_address_.erase(found);
}

bool ArenaTable::Holds(const void* address) const {
  const auto at = reinterpret_cast<uintptr_t>(address);
  MutexLock lock(mutex_);
  const auto next = by_address_.upper_bound(at);
  return next != by_address_.begin() &&
         at - std::prev(next)->first < std::prev(next)->second->bytes();
}

Result<std::vector<Extent>> ArenaTable::Resolve(const void* address, uint64_t bytes) const {
  auto at = reinterpret_cast<uintptr_t>(address);
  uint64_t end = 0;
  if (bytes == 0) {
    return Fail(ErrorCode::kInvalidArgument, RangeText(at, bytes) + " has no bytes");
  }
  if (!EndOf(at, bytes, &end)) {
    return Fail(ErrorCode::kInvalidArgument,
                RangeText(at, bytes) + " goes on past the end of all addresses");
  }
  std::vector<Extent> extents;
  MutexLock lock(mutex_);
  while (bytes > 0) {
    const auto next = by_address_.upper_bound(at);
    const bool first = next == by_address_.begin();
    const uint64_t offset = first ? 0 : at - std::prev(next)->first;
    if (first || offset >= std::prev(next)->second->bytes()) {
      return Fail(
          ErrorCode::kNotExportable,
          RangeText(at, bytes) +
              (extents.empty() ? " lies in no arena" : " goes on past the end of an arena"),
          "memory from malloc, numpy or torch has no descriptor to share: allocate an arena "
          "(gantry_arena_create, Client.arena) and put the data there, or adopt it where it is "
          "(gantry_arena_adopt_private, adopt=True)");
    }
    const std::shared_ptr<Arena>& arena = std::prev(next)->second;
    const uint64_t taken = std::min(bytes, arena->bytes() - offset);
    extents.push_back({arena, offset, taken});
    at += taken;
    bytes -= taken;
  }
  return extents;
}

}  // namespace gantry::client
