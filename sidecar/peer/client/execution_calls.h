// The client's two calls about executions. Stateless; thread-safe.
#pragma once

#include <string>

#include "lib/base/clock.h"
#include "lib/base/result.h"
#include "lib/wire/peer_execution.h"
#include "sidecar/peer/client/call_canceller.h"
#include "sidecar/peer/client/call_context.h"
#include "sidecar/remote/peer_executor.h"

namespace gantry::peer {

Result<wire::PeerExecutionEnd> CallExecute(const CallContext& place,
                                           const wire::PeerExecution& what, TimePoint deadline,
                                           CallCanceller& stop,
                                           engine::PeerExecutor::Watcher& watcher);
// Works also after the end of the session, when it is needed most.
Result<wire::PeerExecutionEnd> CallEndExecution(const CallContext& place, const std::string& id,
                                                TimePoint deadline);

}  // namespace gantry::peer
