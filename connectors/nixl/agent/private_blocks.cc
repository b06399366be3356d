#include "connectors/nixl/agent/private_blocks.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>

#include "client/include/gantry_memory.h"
#include "connectors/nixl/agent/plugin_log.h"
#include "lib/base/byte_range.h"
#include "lib/base/range_text.h"
#include "lib/host/own_mappings.h"

namespace gantry::nixl {
namespace {

bool IsShared(const host::OwnMapping& mapping) { return mapping.is_shared(); }

}  // namespace

Result<ArenaHandle> PrivateBlocks::Adopt(gantry_client* client, const MemoryCard& memory,
                                         UniqueFd* kept) {
  if (!adopts_) return nullptr;
  uint64_t end = 0;
  if (memory.bytes == 0 || !EndOf(memory.base, memory.bytes, &end)) return nullptr;
  const auto mappings = host::MappingsOf(memory.base, end);
  if (!mappings) return nullptr;
  const auto is_kept = [&](const host::OwnMapping& each) {
    return host::StandsFor(kept->get(), each);
  };
  if (kept->valid() && !std::all_of(mappings->begin(), mappings->end(), is_kept)) {
    return Fail(ErrorCode::kStaleGeneration,
                "the memory at " + RangeText(memory.base, memory.bytes) +
                    " was freed or mapped anew while it was registered",
                "deregister memory before it is freed");
  }
  const bool was_shared = std::all_of(mappings->begin(), mappings->end(), IsShared);
  gantry_arena* adopted = nullptr;
  const Status done = Take(gantry_arena_adopt_private(
      client, reinterpret_cast<void*>(memory.base), memory.bytes, GANTRY_PART_OF_BLOCK, &adopted));
  if (!done && was_shared) return nullptr;
  if (!done) {
    Error error = done.error();
    error.hint += (error.hint.empty() ? "" : "; ");
    error.hint += "or allocate it by gantry_nixl.host_memory(bytes)";
    return Fail(std::move(error));
  }
  if (adopted == nullptr) return nullptr;
  ArenaHandle arena(adopted, DestroysHandle());
  if (!kept->valid()) *kept = UniqueFd(::fcntl(gantry_arena_fd(adopted), F_DUPFD_CLOEXEC, 0));
  if (!kept->valid())
    return Fail(SystemError(ErrorCode::kResourceExhausted, "a descriptor of memory", errno));
  if (!was_shared) TellOnce(memory);
  return arena;
}

void PrivateBlocks::TellOnce(const MemoryCard& memory) {
  if (std::exchange(has_told_, true)) return;
  plugin_log::Info(
      "the memory at " + RangeText(memory.base, memory.bytes) +
      " is adopted: it is shared memory from now on, at the same addresses. Children of fork share "
      "it, and it counts as shmem until it is freed. adopt_private=no refuses such memory. More "
      "blocks are adopted without a line");
}

}  // namespace gantry::nixl
