// The client's two calls about queue pairs. Stateless; thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "lib/base/result.h"
#include "lib/wire/rdma_types.h"
#include "sidecar/peer/client/call_context.h"

namespace gantry::peer {

Result<wire::QueuePairGrant> CallConnectQueuePairs(
    const CallContext& place, const std::vector<wire::QueuePairRequest>& requests,
    TimePoint deadline);
Status CallEndQueuePairs(const CallContext& place, uint64_t connection, TimePoint deadline);

}  // namespace gantry::peer
