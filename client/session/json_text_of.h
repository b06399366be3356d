// An answer as the JSON text that the sidecar sent, or would have sent in the place of CBOR. Builds
// no tree, as AnswerFields. Thread-safe.
#pragma once

#include <optional>
#include <string>

namespace gantry::client {

// Of an answer that could be read. Nothing when it has what no JSON has: byte strings.
std::optional<std::string> JsonOf(std::string body);

}  // namespace gantry::client
