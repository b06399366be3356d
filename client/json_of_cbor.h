// An answer in CBOR as the JSON that the sidecar would have sent. Builds no tree, as AnswerFields.
// Thread-safe.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace gantry::client {

// Whether a body is CBOR, whose root is a map: no JSON begins with such a byte.
bool IsCborMap(std::string_view body);

// Nothing when it cannot be read, or has what no JSON has: byte strings.
std::optional<std::string> JsonOfCbor(std::string_view body);

}  // namespace gantry::client
