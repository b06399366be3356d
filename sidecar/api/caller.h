// Who is calling: a lease token, or the uid behind the Unix socket. Thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "lib/base/result.h"
#include "lib/http/http_exchange.h"
#include "sidecar/registry/workload_table.h"

namespace gantry::api {

// The token of "Authorization: Bearer <token>"; empty when there is no such header.
Result<std::string_view> BearerToken(const http::Request& request);

// The caller may act for the workload, and for the registration of it that is answered.
Result<uint64_t> AuthorizeFor(const registry::WorkloadTable& workloads,
                              const http::Request& request, std::string_view workload);
// The caller is on the Unix socket, or has some workload's token.
Status AuthorizeAny(const registry::WorkloadTable& workloads, const http::Request& request);
// The query's `workload`, for a list of what it owns; empty: of everything, on the Unix socket
// only.
Result<std::string> WorkloadToList(const registry::WorkloadTable& workloads,
                                   const http::Request& request);

// The query's `workload` when it must be there: of what has an id that is unique in it only.
Result<std::string> WorkloadOfQuery(const registry::WorkloadTable& workloads,
                                    const http::Request& request);

}  // namespace gantry::api
