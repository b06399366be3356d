// /v1/buffers: registration, resolving, suspending. Thread-safe.
#pragma once

#include "lib/http/http_exchange.h"
#include "sidecar/api/api_dependencies.h"

namespace gantry::api {

Result<http::Response> PostBuffers(const ApiDependencies& api, const http::Request& request);
Result<http::Response> GetBuffer(const ApiDependencies& api, const http::Request& request);
Result<http::Response> ListBuffers(const ApiDependencies& api, const http::Request& request);
Result<http::Response> DeleteBuffer(const ApiDependencies& api, const http::Request& request);
Result<http::Response> ResolveBuffer(const ApiDependencies& api, const http::Request& request);
Result<http::Response> SuspendBuffers(const ApiDependencies& api, const http::Request& request);
Result<http::Response> ResumeBuffers(const ApiDependencies& api, const http::Request& request);

}  // namespace gantry::api
