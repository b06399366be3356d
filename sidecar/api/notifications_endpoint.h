// /v1/notifications: messages to workloads here and at peers. Thread-safe.
#pragma once

#include "lib/http/http_exchange.h"
#include "sidecar/api/api_dependencies.h"

namespace gantry::api {

// Responds before delivery; an event for the sender reports the outcome.
Result<http::Response> PostNotification(const ApiDependencies& api, const http::Request& request);

}  // namespace gantry::api
