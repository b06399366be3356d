// /v1/completions:poll and /v1/events: events after a cursor. Thread-safe.
#pragma once

#include "lib/http/http_exchange.h"
#include "sidecar/api/api_dependencies.h"

namespace gantry::api {

Result<http::Response> PollCompletions(const ApiDependencies& api, const http::Request& request);
// Server-sent events; occupies a thread until the client disconnects.
Result<http::Response> StreamEvents(const ApiDependencies& api, const http::Request& request);

}  // namespace gantry::api
