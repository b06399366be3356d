// The two calls about executions, as a client makes them. Stateless; thread-safe.
#pragma once

#include <string>

#include "lib/base/clock.h"
#include "lib/base/result.h"
#include "lib/wire/peer.grpc.pb.h"
#include "lib/wire/peer_execution.h"
#include "sidecar/engine/peer_executor.h"
#include "sidecar/peer/call_canceller.h"

namespace gantry::peer {

// What both need of a client: its session, and what ends its calls.
struct ExecutionCallContext {
  v1::Peer::Stub& stub;
  const std::string& session;
  const std::string& authorization;  // empty: none
  CallCanceller& calls;
};

Result<wire::PeerExecutionEnd> CallExecute(const ExecutionCallContext& place,
                                           const wire::PeerExecution& what, TimePoint deadline,
                                           CallCanceller& stop,
                                           engine::PeerExecutor::Watcher& watcher);
// Also when the session is over: the end of a session is when it is needed.
Result<wire::PeerExecutionEnd> CallEndExecution(const ExecutionCallContext& place,
                                                const std::string& id, TimePoint deadline);

}  // namespace gantry::peer
