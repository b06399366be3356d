// What is to be looked at before nlohmann reads CBOR from outside. Thread-safe.
#pragma once

#include <string_view>

namespace gantry::wire {

// Whether texts of unknown length may be nested so deep that reading them would overflow the stack:
// nlohmann reads the chunks of such a text by recursion, one level for each of their first bytes in
// a row. Bytes of other items count, too.
bool HasDeepTextChunks(std::string_view body);

}  // namespace gantry::wire
