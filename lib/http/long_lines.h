// Handles header lines that the contract allows but the HTTP library refuses. They are hidden from
// the library; their values are read here. Pure; thread-safe.
#pragma once

#include <string>
#include <string_view>

namespace gantry::http {

// The library accepts lines of this length; a shorter head has no long line.
inline constexpr size_t kShortLineBytesMax = 4096;

// REQUIRES that `head` passed FrameRequest.
std::string WithoutLongLines(std::string_view head);
// Returns the value of the first long line of this name; empty: there is none.
std::string_view LongValueOf(std::string_view head, std::string_view name);

}  // namespace gantry::http
