#include "connectors/nixl/agent/private_blocks.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>

#include "client/include/gantry_memory.h"
#include "connectors/nixl/agent/plugin_log.h"
#include "lib/base/byte_range.h"
#include "lib/base/range_text.h"
#include "lib/host/own_mappings.h"

namespace gantry::nixl {
namespace {

bool IsShared(const host::OwnMapping& mapping) { return mapping.is_shared(); }

// Adoption puts other pages there: it is private, or was adopted and its descriptor has gone.
bool IsToBeReplaced(const host::OwnMapping& mapping) {
  return !mapping.is_shared() ||
         (host::WasReplaced(mapping) && !host::DescriptorOf(mapping).valid());
}

Error Stale(const MemoryCard& memory) {
  return Error(ErrorCode::kStaleGeneration,
               "the memory at " + RangeText(memory.base, memory.bytes) +
                   " was freed or mapped anew while it was registered",
               "deregister memory before it is freed");
}

// A device goes on with the old pages of memory that it has pinned. The kernel does not tell which
// pages these are, but that there are some.
Status CheckNoDeviceHasPages(const MemoryCard& memory) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    constexpr std::string_view kKey = "VmPin:";
    if (!line.starts_with(kKey)) continue;
    const uint64_t kib = std::strtoull(line.c_str() + kKey.size(), nullptr, 10);
    if (kib == 0) return {};
    return Fail(ErrorCode::kNotExportable,
                "a device has " + std::to_string(kib) +
                    " KiB of this process pinned (VmPin: RDMA, io_uring or vfio), and would not "
                    "see the new pages of the memory at " +
                    RangeText(memory.base, memory.bytes) + ", if it is among them",
                "register memory with GANTRY alone, or with GANTRY before anything else pins "
                "memory",
                "address");
  }
  return {};
}

}  // namespace

Result<ArenaHandle> PrivateBlocks::Adopt(gantry_client* client, const MemoryCard& memory,
                                         BlockDescriptor* kept) {
  if (!adopts_) return nullptr;
  uint64_t end = 0;
  if (memory.bytes == 0 || !EndOf(memory.base, memory.bytes, &end)) return nullptr;
  const auto mappings = host::MappingsOf(memory.base, end);
  const auto is_kept = [&](const host::OwnMapping& each) {
    return host::StandsFor((*kept)->get(), each);
  };
  if (*kept && (!mappings || !std::all_of(mappings->begin(), mappings->end(), is_kept)))
    return Fail(Stale(memory));
  if (!mappings) return nullptr;
  const bool was_shared = std::all_of(mappings->begin(), mappings->end(), IsShared);
  const bool was_replaced = std::any_of(mappings->begin(), mappings->end(), host::WasReplaced);
  if (was_shared && !was_replaced) return nullptr;
  if (std::any_of(mappings->begin(), mappings->end(), IsToBeReplaced))
    RETURN_IF_ERROR(CheckNoDeviceHasPages(memory));
  gantry_arena* adopted = nullptr;
  const Status done = Take(gantry_arena_adopt_private(
      client, reinterpret_cast<void*>(memory.base), memory.bytes, GANTRY_PART_OF_BLOCK, &adopted));
  if (!done) {
    Error error = done.error();
    error.hint += (error.hint.empty() ? "" : "; ");
    error.hint += "or allocate it by gantry_nixl.host_memory(bytes)";
    return Fail(std::move(error));
  }
  if (adopted == nullptr) return nullptr;
  ArenaHandle arena(adopted, DestroysHandle());
  if (!*kept) {
    ASSIGN_OR_RETURN(*kept, DescriptorOf(*adopted));
  }
  if (!was_shared) TellOnce(memory);
  return arena;
}

Result<BlockDescriptor> PrivateBlocks::DescriptorOf(const gantry_arena& arena) {
  struct stat info = {};
  if (::fstat(gantry_arena_fd(&arena), &info) != 0)
    return Fail(SystemError(ErrorCode::kInternal, "fstat of a block", errno));
  const MutexLock lock(mutex_);
  std::erase_if(known_, [](const auto& each) { return each.second.expired(); });
  auto& known = known_[{info.st_dev, info.st_ino}];
  if (BlockDescriptor descriptor = known.lock()) return descriptor;
  UniqueFd copy(::fcntl(gantry_arena_fd(&arena), F_DUPFD_CLOEXEC, 0));
  if (!copy.valid())
    return Fail(SystemError(ErrorCode::kResourceExhausted, "a descriptor of memory", errno));
  auto descriptor = std::make_shared<const UniqueFd>(std::move(copy));
  known = descriptor;
  return descriptor;
}

void PrivateBlocks::TellOnce(const MemoryCard& memory) {
  if (has_told_.exchange(true)) return;
  plugin_log::Info(
      "the memory at " + RangeText(memory.base, memory.bytes) +
      " is adopted: it is shared memory from now on, at the same addresses. Children of fork share "
      "it, and it counts as shmem until it is freed. adopt_private=no refuses such memory. More "
      "blocks are adopted without a line");
}

}  // namespace gantry::nixl
