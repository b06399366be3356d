#include "lib/base/base64.h"

#include <array>
#include <cstdint>

namespace gantry {
namespace {

constexpr std::string_view kDigits =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
constexpr uint8_t kNoDigit = 64;

constexpr auto kValues = [] {
  std::array<uint8_t, 256> values{};
  for (uint8_t& value : values) value = kNoDigit;
  for (size_t i = 0; i < kDigits.size(); ++i) {
    values[static_cast<uint8_t>(kDigits[i])] = static_cast<uint8_t>(i);
  }
  return values;
}();

uint32_t Byte(std::string_view bytes, size_t i) {
  return i < bytes.size() ? static_cast<uint8_t>(bytes[i]) : 0;
}

tl::unexpected<Error> NoBase64() {
  return Fail(ErrorCode::kInvalidArgument, "the text is not base64",
              "encode with the alphabet of RFC 4648 section 4, with padding and no line breaks");
}

}  // namespace

std::string Base64Of(std::string_view bytes) {
  std::string text;
  text.reserve(Base64Length(bytes.size()));
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const uint32_t group = Byte(bytes, i) << 16 | Byte(bytes, i + 1) << 8 | Byte(bytes, i + 2);
    text += kDigits[group >> 18];
    text += kDigits[group >> 12 & 63];
    text += i + 1 < bytes.size() ? kDigits[group >> 6 & 63] : '=';
    text += i + 2 < bytes.size() ? kDigits[group & 63] : '=';
  }
  return text;
}

Result<std::string> ParseBase64(std::string_view text) {
  if (text.size() % 4 != 0) return NoBase64();
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3);
  for (size_t i = 0; i < text.size(); i += 4) {
    const bool last = i + 4 == text.size();
    const size_t padding =
        !last ? 0 : (text[i + 3] == '=') + (text[i + 3] == '=' && text[i + 2] == '=');
    uint32_t group = 0;
    for (size_t j = 0; j < 4; ++j) {
      const uint8_t value = j < 4 - padding ? kValues[static_cast<uint8_t>(text[i + j])] : 0;
      if (value == kNoDigit) return NoBase64();
      group = group << 6 | value;
    }
    // Bits that stand for no byte are zero: one text for one message.
    if ((padding == 1 && (group & 0xff) != 0) || (padding == 2 && (group & 0xffff) != 0)) {
      return NoBase64();
    }
    bytes += static_cast<char>(group >> 16);
    if (padding < 2) bytes += static_cast<char>(group >> 8 & 0xff);
    if (padding < 1) bytes += static_cast<char>(group & 0xff);
  }
  return bytes;
}

}  // namespace gantry
