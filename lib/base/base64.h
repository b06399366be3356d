// Base64 of RFC 4648 section 4, with padding. Thread-safe.
#pragma once

#include <string>
#include <string_view>

#include "lib/base/result.h"

namespace gantry {

std::string Base64Of(std::string_view bytes);
// Accepts only canonical text, as Base64Of writes it.
Result<std::string> ParseBase64(std::string_view text);

// Returns the length of the text for `bytes` bytes.
constexpr size_t Base64Length(size_t bytes) { return (bytes + 2) / 3 * 4; }

}  // namespace gantry
