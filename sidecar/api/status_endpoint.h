// What operators, dashboards and probes ask: /v1/status, /v1/info, /v1/debug, /metrics, /healthz,
// /readyz, /openapi.yaml. Thread-safe.
#pragma once

#include "sidecar/api/api_dependencies.h"
#include "sidecar/api/http_exchange.h"

namespace gantry::api {

Result<Response> GetStatus(const ApiDependencies& api, const Request& request);
Result<Response> GetInfo(const ApiDependencies& api, const Request& request);
Result<Response> DebugBuffers(const ApiDependencies& api, const Request& request);
Result<Response> DebugTransfers(const ApiDependencies& api, const Request& request);
Result<Response> DebugPeers(const ApiDependencies& api, const Request& request);
Result<Response> DebugWorkers(const ApiDependencies& api, const Request& request);
Result<Response> GetMetrics(const ApiDependencies& api, const Request& request);
Result<Response> GetHealth(const ApiDependencies& api, const Request& request);
Result<Response> GetReadiness(const ApiDependencies& api, const Request& request);
Result<Response> GetOpenApi(const ApiDependencies& api, const Request& request);

}  // namespace gantry::api
