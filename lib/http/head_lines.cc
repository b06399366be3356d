#include "lib/http/head_lines.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>

namespace gantry::http {
namespace {

constexpr bool IsTokenCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
}

constexpr auto kTokenTable = [] {
  std::array<bool, 256> table{};
  for (int c = 0; c < 128; ++c) {
    table[static_cast<size_t>(c)] = IsTokenCharacter(static_cast<char>(c));
  }
  return table;
}();

constexpr uint64_t EachByte(uint8_t byte) { return byte * uint64_t{0x0101010101010101}; }

// Whether one of eight bytes is below 0x20, or 0x7f: a borrow goes to the next byte from such
// alone.
bool HasControlOrTab(const char* bytes) {
  uint64_t word = 0;
  std::memcpy(&word, bytes, sizeof(word));
  const uint64_t differs = word ^ EachByte(0x7f);
  const uint64_t low = (word - EachByte(0x20)) & ~word, is_7f = (differs - EachByte(1)) & ~differs;
  return ((low | is_7f) & EachByte(0x80)) != 0;
}

bool HasControlCharacter(std::string_view text) {
  while (text.size() >= sizeof(uint64_t) && !HasControlOrTab(text.data())) {
    text.remove_prefix(sizeof(uint64_t));
  }
  return std::any_of(text.begin(), text.end(), [](char c) {
    return (static_cast<uint8_t>(c) < 0x20 && c != '\t') || c == 0x7f;
  });
}

}  // namespace

std::optional<std::string_view> TakeLine(std::string_view* head) {
  const size_t end = head->find("\r\n");
  if (end == std::string_view::npos) return {};
  const std::string_view line = head->substr(0, end);
  head->remove_prefix(end + 2);
  if (HasControlCharacter(line)) return {};
  return line;
}

std::optional<HeaderLine> HeaderIn(std::string_view line) {
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos || !IsToken(line.substr(0, colon))) return {};
  return HeaderLine{line.substr(0, colon), Trim(line.substr(colon + 1))};
}

bool IsToken(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(),
                                      [](char c) { return kTokenTable[static_cast<uint8_t>(c)]; });
}

bool IsBlank(char c) { return c == ' ' || c == '\t'; }

std::string_view Trim(std::string_view text) {
  while (!text.empty() && IsBlank(text.front())) text.remove_prefix(1);
  while (!text.empty() && IsBlank(text.back())) text.remove_suffix(1);
  return text;
}

std::optional<uint64_t> NumberIn(std::string_view text, int base) {
  uint64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, code] = std::from_chars(text.data(), end, value, base);
  if (code == std::errc::invalid_argument || stop != end) return {};
  return code == std::errc::result_out_of_range ? UINT64_MAX : value;
}

}  // namespace gantry::http
