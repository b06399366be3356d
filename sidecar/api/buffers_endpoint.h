// /v1/buffers: registration, resolving, suspending. Thread-safe.
#pragma once

#include "sidecar/api/api_dependencies.h"
#include "sidecar/api/http_exchange.h"

namespace gantry::api {

Result<Response> PostBuffers(const ApiDependencies& api, const Request& request);
Result<Response> GetBuffer(const ApiDependencies& api, const Request& request);
Result<Response> ListBuffers(const ApiDependencies& api, const Request& request);
Result<Response> DeleteBuffer(const ApiDependencies& api, const Request& request);
Result<Response> ResolveBuffer(const ApiDependencies& api, const Request& request);
Result<Response> SuspendBuffers(const ApiDependencies& api, const Request& request);
Result<Response> ResumeBuffers(const ApiDependencies& api, const Request& request);

}  // namespace gantry::api
