// /v1/workloads: leases. Thread-safe.
#pragma once

#include "lib/http/http_exchange.h"
#include "sidecar/api/api_dependencies.h"

namespace gantry::api {

Result<http::Response> PutWorkload(const ApiDependencies& api, const http::Request& request);
Result<http::Response> GetWorkload(const ApiDependencies& api, const http::Request& request);
Result<http::Response> ListWorkloads(const ApiDependencies& api, const http::Request& request);
Result<http::Response> DeleteWorkload(const ApiDependencies& api, const http::Request& request);

}  // namespace gantry::api
