// Authenticates the caller by a lease token or by the uid of the Unix socket. Thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "lib/base/result.h"
#include "lib/http/http_exchange.h"
#include "sidecar/registry/workload_table.h"

namespace gantry::api {

// Returns the token of "Authorization: Bearer <token>"; empty without that header. Another form of
// the header is kUnauthenticated.
Result<std::string_view> BearerToken(const http::Request& request);

// Checks that the caller may act for the workload. Returns the generation of its registration.
Result<uint64_t> AuthorizeFor(const registry::WorkloadTable& workloads,
                              const http::Request& request, std::string_view workload);
// Checks that the caller is on the Unix socket or has the token of some workload.
Status AuthorizeAny(const registry::WorkloadTable& workloads, const http::Request& request);
// Returns the query's `workload`, authorised, for a list of what it owns. Empty: the list of all
// workloads, on the Unix socket only.
Result<std::string> WorkloadToList(const registry::WorkloadTable& workloads,
                                   const http::Request& request);

// Returns the query's required `workload`, authorised. For objects whose id is unique only within a
// workload.
Result<std::string> WorkloadOfQuery(const registry::WorkloadTable& workloads,
                                    const http::Request& request);

}  // namespace gantry::api
