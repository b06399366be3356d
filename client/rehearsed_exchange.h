// What a client rehearses: the request for a small transfer, and the answer to it that is read.
// Thread-safe.
#pragma once

#include <string>
#include <string_view>

namespace gantry::client {

// The body of a request in the name of `workload`, made anew each time as a real one is.
std::string RehearsedBody(std::string_view workload);
// All that the sidecar would send.
const std::string& RehearsedAnswer();

}  // namespace gantry::client
