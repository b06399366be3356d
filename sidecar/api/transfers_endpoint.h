// /v1/transfers: submit, query, cancel. Thread-safe.
#pragma once

#include "lib/http/http_exchange.h"
#include "sidecar/api/api_dependencies.h"

namespace gantry::api {

Result<http::Response> PostTransfers(const ApiDependencies& api, const http::Request& request);
Result<http::Response> GetTransfer(const ApiDependencies& api, const http::Request& request);
Result<http::Response> ListTransfers(const ApiDependencies& api, const http::Request& request);
Result<http::Response> DeleteTransfer(const ApiDependencies& api, const http::Request& request);

}  // namespace gantry::api
