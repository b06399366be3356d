// Passes probes to a worker in shared memory, and formats the answer as one line. The pool makes
// lists and parses answers; the worker's control thread compares. Thread-safe, except
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

// A worker compares these in a few milliseconds, during which it maps nothing.
inline constexpr size_t kProbesPerListMax = 1024;

// REQUIRES 1 to kProbesPerListMax probes.
Result<SharedBlock> MakeProbeList(std::span<const memory::MemoryProbe> probes);

// Returns "" if all `count` probes match this process's mappings. Else returns the index of the
// first mismatch and the bytes found, in hexadecimal. Control thread.
Result<std::string> CompareProbes(const MappingTable& mappings, UniqueFd list, uint64_t count);

// Parses the answer of CompareProbes to `count` probes; leaves `finder` empty.
Result<memory::ProbeMismatch> ParseMismatch(std::string_view said, size_t count);

}  // namespace gantry::worker
