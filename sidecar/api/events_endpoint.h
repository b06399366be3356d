// /v1/completions:poll and /v1/events: what happened, after a cursor. Thread-safe.
#pragma once

#include "sidecar/api/api_dependencies.h"
#include "sidecar/api/http_exchange.h"

namespace gantry::api {

Result<Response> PollCompletions(const ApiDependencies& api, const Request& request);
// Server-sent events; holds a thread until the client hangs up.
Result<Response> StreamEvents(const ApiDependencies& api, const Request& request);

}  // namespace gantry::api
