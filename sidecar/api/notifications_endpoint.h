// /v1/notifications: messages to workloads here and at peers. Thread-safe.
#pragma once

#include "sidecar/api/api_dependencies.h"
#include "sidecar/api/http_exchange.h"

namespace gantry::api {

// Answers before it is delivered; an event of the sender says what became of it.
Result<Response> PostNotification(const ApiDependencies& api, const Request& request);

}  // namespace gantry::api
