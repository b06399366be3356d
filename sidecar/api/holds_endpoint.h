// /v1/holds: promises that blocks keep their content until they are read, or a time. Thread-safe.
#pragma once

#include "sidecar/api/api_dependencies.h"
#include "sidecar/api/http_exchange.h"

namespace gantry::api {

Result<Response> PutHold(const ApiDependencies& api, const Request& request);
Result<Response> PatchHold(const ApiDependencies& api, const Request& request);
Result<Response> GetHold(const ApiDependencies& api, const Request& request);
Result<Response> ListHolds(const ApiDependencies& api, const Request& request);
Result<Response> DeleteHold(const ApiDependencies& api, const Request& request);

}  // namespace gantry::api
