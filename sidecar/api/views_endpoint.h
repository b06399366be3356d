// /v1/views: pairs of buffers that transfers may name in place of lists. Thread-safe.
#pragma once

#include "lib/base/result.h"
#include "lib/http/http_exchange.h"
#include "sidecar/api/api_dependencies.h"

namespace gantry::api {

Result<http::Response> PostViews(const ApiDependencies& api, const http::Request& request);
Result<http::Response> ListViews(const ApiDependencies& api, const http::Request& request);
Result<http::Response> GetView(const ApiDependencies& api, const http::Request& request);
Result<http::Response> DeleteView(const ApiDependencies& api, const http::Request& request);

}  // namespace gantry::api
