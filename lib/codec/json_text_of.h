// A body in JSON or CBOR as the JSON text that says the same. Builds no tree, as BodyFields.
// Thread-safe.
#pragma once

#include <optional>
#include <string>

namespace gantry::wire {

// Nothing when CBOR cannot be read, or has what no JSON has: byte strings.
std::optional<std::string> JsonOf(std::string body);

}  // namespace gantry::wire
