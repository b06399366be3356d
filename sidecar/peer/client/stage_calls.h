// The calls about staging memory of the owner, as a client makes them. Stateless; thread-safe.
#pragma once

#include <cstdint>
#include <optional>

#include "lib/base/result.h"
#include "lib/wire/stage_types.h"
#include "sidecar/peer/client/call_context.h"

namespace gantry::peer {

// No more slices than were asked for.
Result<wire::StageGrant> CallOpenStage(const CallContext& place, uint32_t slices,
                                       TimePoint deadline);
Status CallCloseStage(const CallContext& place, uint64_t stage, TimePoint deadline);
// What the owner says became of it; nothing: all bytes were copied. A failure says nothing of that.
Result<std::optional<Error>> CallCopyStaged(const CallContext& place, const wire::StagedMove& move,
                                            TimePoint deadline);

}  // namespace gantry::peer
