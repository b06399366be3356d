// The client's calls about the owner's staging memory. Stateless; thread-safe.
#pragma once

#include <cstdint>
#include <optional>

#include "lib/base/result.h"
#include "lib/wire/stage_types.h"
#include "sidecar/peer/client/call_context.h"

namespace gantry::peer {

// Returns at most `slices` slices.
Result<wire::StageGrant> CallOpenStage(const CallContext& place, uint32_t slices,
                                       TimePoint deadline);
Status CallCloseStage(const CallContext& place, uint64_t stage, TimePoint deadline);
// Returns the owner's error, or nothing if all bytes were copied. A failed call leaves the outcome
// unknown.
Result<std::optional<Error>> CallCopyStaged(const CallContext& place, const wire::StagedMove& move,
                                            TimePoint deadline);

}  // namespace gantry::peer
