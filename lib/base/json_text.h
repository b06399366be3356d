// Escapes text for a JSON string; for the few places that write JSON without a JSON library.
// Thread-safe.
#pragma once

#include <string>
#include <string_view>

namespace gantry {

// `text` in double quotes. Bytes that are no valid UTF-8 become U+FFFD.
std::string JsonQuote(std::string_view text);

bool IsUtf8(std::string_view text);

}  // namespace gantry
