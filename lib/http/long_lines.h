// Header lines that the contract allows and the HTTP library refuses. The library is not shown
// them, and whoever needs one's value reads it here. Pure; thread-safe.
#pragma once

#include <string>
#include <string_view>

namespace gantry::http {

// What the library takes for certain; a head that is no longer has no long line.
inline constexpr size_t kShortLineBytesMax = 4096;

// `head` was framed before (RequestFraming).
std::string WithoutLongLines(std::string_view head);
// The value of the first long line of this name; empty: there is none.
std::string_view LongValueOf(std::string_view head, std::string_view name);

}  // namespace gantry::http
