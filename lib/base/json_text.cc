#include "lib/base/json_text.h"

#include <cstdint>
#include <cstring>

namespace gantry {
namespace {

// The length of the valid UTF-8 sequence at the start of `text`, or 0.
size_t SequenceLength(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte(0);
  const size_t length = first < 0x80         ? 1
                        : (first >> 5) == 6  ? 2
                        : (first >> 4) == 14 ? 3
                        : (first >> 3) == 30 ? 4
                                             : 0;
  if (length == 0 || length > text.size()) return 0;
  uint32_t point = length == 1 ? first : first & (0xFFu >> (length + 1));
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) >> 6) != 2) return 0;
    point = (point << 6) | (byte(i) & 0x3F);
  }
  static constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = point >= 0xD800 && point <= 0xDFFF;
  return point < kLeast[length] || surrogate || point > 0x10FFFF ? 0 : length;
}

// At the start of `text`, eight by eight, and at its end if the rest is: almost all are.
size_t AsciiBytes(std::string_view text) {
  size_t bytes = 0;
  for (; text.size() - bytes >= sizeof(uint64_t); bytes += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, text.data() + bytes, sizeof(word));
    if ((word & 0x8080808080808080U) != 0) return bytes;
  }
  uint8_t any = 0;
  for (size_t i = bytes; i < text.size(); ++i) any |= static_cast<uint8_t>(text[i]);
  return any < 0x80 ? text.size() : bytes;
}

}  // namespace

std::string JsonQuote(std::string_view text) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out = "\"";
  out.reserve(text.size() + 2);
  while (!text.empty()) {
    const char c = text.front();
    const size_t length = SequenceLength(text);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<uint8_t>(c) < 0x20) {
      out += "\\u00";
      out += kHex[static_cast<uint8_t>(c) >> 4];
      out += kHex[c & 15];
    } else if (length == 0) {
      out += "\\ufffd";
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  out += '"';
  return out;
}

bool IsUtf8(std::string_view text) {
  for (;;) {
    text.remove_prefix(AsciiBytes(text));
    if (text.empty()) return true;
    const size_t length = SequenceLength(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
}

}  // namespace gantry
