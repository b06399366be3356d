// /v1/views: pairs of buffers that transfers may name in place of lists. Thread-safe.
#pragma once

#include "lib/base/result.h"
#include "sidecar/api/api_dependencies.h"
#include "sidecar/api/http_exchange.h"

namespace gantry::api {

Result<Response> PostViews(const ApiDependencies& api, const Request& request);
Result<Response> ListViews(const ApiDependencies& api, const Request& request);
Result<Response> GetView(const ApiDependencies& api, const Request& request);
Result<Response> DeleteView(const ApiDependencies& api, const Request& request);

}  // namespace gantry::api
