// /v1/notifications: messages to workloads here and at peers. Thread-safe.
#pragma once

#include "lib/http/http_exchange.h"
#include "sidecar/api/api_dependencies.h"

namespace gantry::api {

// Answers before it is delivered; an event of the sender says what became of it.
Result<http::Response> PostNotification(const ApiDependencies& api, const http::Request& request);

}  // namespace gantry::api
