// Between the peer protocol's messages on executions and plain values: what comes from a peer is
// checked here, but for what its buffers' owners check. Stateless; thread-safe.
#pragma once

#include <string_view>

#include "lib/base/result.h"
#include "lib/wire/peer.pb.h"
#include "lib/wire/peer_execution.h"

namespace gantry::wire {

inline constexpr int kPeerRangesMax = 262'144;          // of one execution
inline constexpr int kPeerExecutedBuffersMax = 16'384;  // of each side
inline constexpr int kPeerProofsMax = 8;
// A capability: the owner takes Execute and EndExecution.
inline constexpr std::string_view kPeerExecutions = "executions";

void ToMessage(const PeerExecution& execution, gantry::peer::v1::ExecuteRequest* message);
Result<PeerExecution> FromMessage(const gantry::peer::v1::ExecuteRequest& message);

void ToMessage(const PeerExecutionEnd& end, gantry::peer::v1::ExecutionEnded* message);
PeerExecutionEnd FromMessage(const gantry::peer::v1::ExecutionEnded& message);

}  // namespace gantry::wire
