// The table of endpoints, one line each, and the handler that dispatches to them. Thread-safe.
#pragma once

#include <array>
#include <span>
#include <string_view>

#include "lib/base/result.h"
#include "lib/http/http_exchange.h"
#include "sidecar/api/api_dependencies.h"

namespace gantry::api {

// Required authentication besides access to the socket. Endpoints that act for a workload check it
// themselves, once they know the workload.
enum class Guard {
  kOpen,      // anyone
  kCaller,    // any caller on the Unix socket; on TCP any lease token
  kWorkload,  // the endpoint checks
};

struct Route {
  std::string_view method;
  std::string_view pattern;  // literal parts and at most one {part}
  Guard guard = Guard::kOpen;
  std::array<std::string_view, 3> query;  // the accepted parameters; others are refused
  Result<http::Response> (*handle)(const ApiDependencies& api,
                                   const http::Request& request) = nullptr;
};

std::span<const Route> Routes();

// Finds the route, checks the guard and the query, and calls the endpoint. Turns errors into
// problem responses and counts the request.
http::Handler MakeApi(const ApiDependencies& api);

}  // namespace gantry::api
