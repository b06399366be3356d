// Bytes as text: RFC 4648 section 4, with padding. Thread-safe.
#pragma once

#include <string>
#include <string_view>

#include "lib/base/result.h"

namespace gantry {

std::string Base64Of(std::string_view bytes);
// Fails for anything but the one text that Base64Of makes of some bytes.
Result<std::string> ParseBase64(std::string_view text);

// The length of the text for so many bytes.
constexpr size_t Base64Length(size_t bytes) { return (bytes + 2) / 3 * 4; }

}  // namespace gantry
