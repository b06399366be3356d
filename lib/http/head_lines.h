// The lines of the head of an HTTP/1.1 message: the one reading of requests and replies. Pure;
// thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>

namespace gantry::http {

struct HeaderLine {
  std::string_view name;
  std::string_view value;  // without the blanks around it
};

// Takes the next line off the front of `head` and returns it without its CR LF. Nothing: none ends
// there, or it has control characters.
std::optional<std::string_view> TakeLine(std::string_view* head);
// Nothing: the line has no colon, or its name is no token.
std::optional<HeaderLine> HeaderIn(std::string_view line);

bool IsToken(std::string_view text);
bool IsBlank(char c);
std::string_view Trim(std::string_view text);
inline bool EqualsIgnoringCase(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [&](char one, char other) { return lower(one) == lower(other); });
}

// Digits alone, of base 10 or 16. UINT64_MAX stands for numbers that are too large. Nothing: it has
// other characters, or none.
std::optional<uint64_t> NumberIn(std::string_view text, int base);

}  // namespace gantry::http
