// How long bytes of a transfer may still move after its sidecar was lost. Stateless; thread-safe.
#pragma once

#include <string_view>

#include "connectors/nixl/abi/nixl_interface.h"
#include "lib/base/clock.h"

namespace gantry::nixl {

// `executor`, `path`: as in the last gantry_transfer_status; 0 and "" where it was not heard. Then
// the longest time counts.
milliseconds QuietTimeAfterLoss(Operation operation, int executor, std::string_view path);

}  // namespace gantry::nixl
