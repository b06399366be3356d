// /v1/holds: promises that blocks keep their content until they are read, or for a time.
// Thread-safe.
#pragma once

#include "lib/http/http_exchange.h"
#include "sidecar/api/api_dependencies.h"

namespace gantry::api {

Result<http::Response> PutHold(const ApiDependencies& api, const http::Request& request);
Result<http::Response> PatchHold(const ApiDependencies& api, const http::Request& request);
Result<http::Response> GetHold(const ApiDependencies& api, const http::Request& request);
Result<http::Response> ListHolds(const ApiDependencies& api, const http::Request& request);
Result<http::Response> DeleteHold(const ApiDependencies& api, const http::Request& request);

}  // namespace gantry::api
