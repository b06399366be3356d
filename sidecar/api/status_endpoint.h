// Endpoints for operators, dashboards and probes: /v1/status, /v1/info, /v1/debug, /metrics,
// /healthz, /readyz, /openapi.yaml. Thread-safe.
#pragma once

#include "lib/http/http_exchange.h"
#include "sidecar/api/api_dependencies.h"

namespace gantry::api {

Result<http::Response> GetStatus(const ApiDependencies& api, const http::Request& request);
Result<http::Response> GetInfo(const ApiDependencies& api, const http::Request& request);
Result<http::Response> DebugBuffers(const ApiDependencies& api, const http::Request& request);
Result<http::Response> DebugTransfers(const ApiDependencies& api, const http::Request& request);
Result<http::Response> DebugPeers(const ApiDependencies& api, const http::Request& request);
Result<http::Response> DebugWorkers(const ApiDependencies& api, const http::Request& request);
Result<http::Response> GetMetrics(const ApiDependencies& api, const http::Request& request);
Result<http::Response> GetHealth(const ApiDependencies& api, const http::Request& request);
Result<http::Response> GetReadiness(const ApiDependencies& api, const http::Request& request);
Result<http::Response> GetOpenApi(const ApiDependencies& api, const http::Request& request);

}  // namespace gantry::api
