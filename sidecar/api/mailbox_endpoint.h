// Memory for small requests beside a connection (lib/base/mailbox.h). Thread-safe.
#pragma once

#include "lib/http/http_exchange.h"
#include "sidecar/api/api_dependencies.h"

namespace gantry::api {

Result<http::Response> PostMailbox(const ApiDependencies& api, const http::Request& request);

}  // namespace gantry::api
