// Where other nodes reach the sidecar of this pod. Stateless; thread-safe.
#pragma once

#include <string>

namespace gantry::nixl {

// `listens` ("host:port") with `host`, or the machine's own address, in the place of a wildcard.
// Empty for an empty or unreadable one.
std::string ReachableAddress(const std::string& listens, const std::string& host);

}  // namespace gantry::nixl
