// /v1/transfers: submit, ask, cancel. Thread-safe.
#pragma once

#include "sidecar/api/api_dependencies.h"
#include "sidecar/api/http_exchange.h"

namespace gantry::api {

Result<Response> PostTransfers(const ApiDependencies& api, const Request& request);
Result<Response> GetTransfer(const ApiDependencies& api, const Request& request);
Result<Response> ListTransfers(const ApiDependencies& api, const Request& request);
Result<Response> DeleteTransfer(const ApiDependencies& api, const Request& request);

}  // namespace gantry::api
