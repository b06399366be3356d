// /v1/workloads: leases. Thread-safe.
#pragma once

#include "sidecar/api/api_dependencies.h"
#include "sidecar/api/http_exchange.h"

namespace gantry::api {

Result<Response> PutWorkload(const ApiDependencies& api, const Request& request);
Result<Response> GetWorkload(const ApiDependencies& api, const Request& request);
Result<Response> ListWorkloads(const ApiDependencies& api, const Request& request);
Result<Response> DeleteWorkload(const ApiDependencies& api, const Request& request);

}  // namespace gantry::api
