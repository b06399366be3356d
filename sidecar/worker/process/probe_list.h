// Probes on their way to a worker: a list in shared memory, and the one line that is answered. The
// pool makes lists and reads answers, the worker's control thread compares. Thread-safe but for
// CompareProbes.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "lib/base/result.h"
#include "lib/base/unique_fd.h"
#include "sidecar/memory/memory_mapper.h"
#include "sidecar/worker/channel/shared_block.h"
#include "sidecar/worker/process/mapping_table.h"

namespace gantry::worker {

// As many as a worker compares in a few milliseconds: it maps nothing meanwhile.
inline constexpr size_t kProbesPerListMax = 1024;

// REQUIRES 1 to kProbesPerListMax of them.
Result<SharedBlock> MakeProbeList(std::span<const memory::MemoryProbe> probes);

// "" when all of the list's `count` probes are what is mapped here, else the index of the first
// that is not, and what is there in hexadecimal. Control thread.
Result<std::string> CompareProbes(const MappingTable& mappings, UniqueFd list, uint64_t count);

// What CompareProbes answered of `count` probes; the finder is left empty.
Result<memory::ProbeMismatch> ParseMismatch(std::string_view said, size_t count);

}  // namespace gantry::worker
