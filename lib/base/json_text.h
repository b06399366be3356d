// Escapes text for a JSON string, for the few places that write JSON without a library.
// Thread-safe.
#pragma once

#include <string>
#include <string_view>

namespace gantry {

// Returns `text` in double quotes. Bytes that are not valid UTF-8 become U+FFFD.
std::string JsonQuote(std::string_view text);

bool IsUtf8(std::string_view text);

}  // namespace gantry
