// Every endpoint, one line each, and the handler that chooses between them. Thread-safe.
#pragma once

#include <array>
#include <span>
#include <string_view>

#include "lib/base/result.h"
#include "lib/http/http_exchange.h"
#include "sidecar/api/api_dependencies.h"

namespace gantry::api {

// Who may call, beyond having access to the socket. Everything that acts for a workload checks that
// itself, when it knows which one it is.
enum class Guard {
  kOpen,      // anyone
  kCaller,    // anyone on the Unix socket; on TCP the holder of any lease token
  kWorkload,  // checked by the endpoint
};

struct Route {
  std::string_view method;
  std::string_view pattern;  // of literal parts and at most one {part}
  Guard guard = Guard::kOpen;
  std::array<std::string_view, 3> query;  // the parameters it knows; others are refused
  Result<http::Response> (*handle)(const ApiDependencies& api,
                                   const http::Request& request) = nullptr;
};

std::span<const Route> Routes();

// Finds the route, checks the guard and the query, calls the endpoint, turns errors into problems
// and counts the request.
http::Handler MakeApi(const ApiDependencies& api);

}  // namespace gantry::api
