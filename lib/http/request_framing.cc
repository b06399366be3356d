#include "lib/http/request_framing.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

namespace gantry::http {
namespace {

constexpr size_t kMethodBytesMax = 16;

// Acted on by the library: Expect is answered here, ranges and compressed responses do not exist.
constexpr std::array<std::string_view, 3> kHidden = {"expect", "range", "accept-encoding"};

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

bool IsToken(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(),
                                      [](char c) { return kTokenTable[static_cast<uint8_t>(c)]; });
}

bool EqualsIgnoringCase(std::string_view text, std::string_view lower) {
  return text.size() == lower.size() &&
         std::equal(text.begin(), text.end(), lower.begin(), [](char a, char b) {
           return (a >= 'A' && a <= 'Z' ? static_cast<char>(a + 32) : a) == b;
         });
}

bool IsBlank(char c) { return c == ' ' || c == '\t'; }
bool IsDigit(char c) { return c >= '0' && c <= '9'; }

std::string_view Trim(std::string_view text) {
  while (!text.empty() && IsBlank(text.front())) text.remove_prefix(1);
  while (!text.empty() && IsBlank(text.back())) text.remove_suffix(1);
  return text;
}

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

std::optional<Refusal> CheckRequestLine(std::string_view line, const FramingLimits& limits) {
  const size_t method_end = line.find(' ');
  const size_t target_end = line.rfind(' ');
  if (method_end == std::string_view::npos || target_end == method_end) return Refusal::kMalformed;
  const std::string_view method = line.substr(0, method_end);
  const std::string_view target = line.substr(method_end + 1, target_end - method_end - 1);
  const std::string_view version = line.substr(target_end + 1);
  if (method.size() > kMethodBytesMax || !IsToken(method)) return Refusal::kMalformed;
  if (!version.starts_with("HTTP/")) return Refusal::kMalformed;
  if (version != "HTTP/1.1" && version != "HTTP/1.0") return Refusal::kVersion;
  if (target.size() > limits.target_bytes_max) return Refusal::kTargetTooLong;
  if (!target.starts_with('/') || std::any_of(target.begin(), target.end(), IsBlank)) {
    return Refusal::kMalformed;
  }
  return {};
}

// A decimal number of bytes; more than fits is as good as "too large".
std::optional<Refusal> ReadLength(std::string_view text, size_t most, size_t* length) {
  if (text.empty() || !std::all_of(text.begin(), text.end(), IsDigit)) {
    return Refusal::kMalformed;
  }
  *length = 0;
  for (const char digit : text) {
    *length = *length * 10 + static_cast<size_t>(digit - '0');
    if (*length > most) return Refusal::kBodyTooLarge;
  }
  return {};
}

// The head of one request, line by line.
class HeadReader {
 public:
  HeadReader(char* bytes, size_t size, const FramingLimits& limits, Framing* framing)
      : bytes_(bytes), rest_(bytes, size), limits_(limits), framing_(framing) {}

  std::optional<Refusal> Read() {
    const auto first = Line();
    if (!first) return Refusal::kMalformed;
    if (const auto refusal = CheckRequestLine(*first, limits_)) return refusal;
    for (size_t count = 0;; ++count) {
      const auto line = Line();
      if (!line) return Refusal::kMalformed;
      if (line->empty()) return {};
      if (count == limits_.headers_max) return Refusal::kHeadTooLarge;
      if (const auto refusal = TakeHeader(*line)) return refusal;
    }
  }

 private:
  // The next line without its CR LF; nothing when it has control characters.
  std::optional<std::string_view> Line() {
    const size_t end = rest_.find("\r\n");
    if (end == std::string_view::npos) return {};
    const std::string_view line = rest_.substr(0, end);
    rest_.remove_prefix(end + 2);
    if (HasControlCharacter(line)) return {};
    return line;
  }

  std::optional<Refusal> TakeHeader(std::string_view line) {
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos || !IsToken(line.substr(0, colon))) {
      return Refusal::kMalformed;
    }
    const std::string_view name = line.substr(0, colon);
    const std::string_view value = Trim(line.substr(colon + 1));
    if (EqualsIgnoringCase(name, "transfer-encoding")) return Refusal::kLengthRequired;
    if (EqualsIgnoringCase(name, "content-encoding")) return Refusal::kEncoding;
    if (EqualsIgnoringCase(name, "content-length")) {
      if (has_length_) return Refusal::kMalformed;
      has_length_ = true;
      return ReadLength(value, limits_.body_bytes_max, &framing_->body_bytes);
    }
    // The library knows it in small letters alone.
    if (EqualsIgnoringCase(name, "connection") && EqualsIgnoringCase(value, "close")) {
      std::copy_n("close", value.size(), bytes_ + (value.data() - bytes_));
    }
    for (const std::string_view hidden : kHidden) {
      if (!EqualsIgnoringCase(name, hidden)) continue;
      if (hidden == "expect")
        framing_->expects_continue = EqualsIgnoringCase(value, "100-continue");
      bytes_[name.data() - bytes_] = '-';
    }
    return {};
  }

  char* const bytes_;
  std::string_view rest_;
  const FramingLimits& limits_;
  Framing* const framing_;
  bool has_length_ = false;
};

Framing Refuse(Framing framing, Refusal refusal) {
  framing.state = Framing::State::kRefused;
  framing.refusal = refusal;
  return framing;
}

// Finds the empty line; before it is there, only the limits are checked.
Framing FindHead(Framing framing, std::string_view bytes, const FramingLimits& limits) {
  const size_t end = bytes.find("\r\n\r\n", framing.scanned);
  if (end != std::string_view::npos && end + 4 <= limits.head_bytes_max) {
    framing.head_bytes = end + 4;
    return framing;
  }
  framing.scanned = bytes.size() < 3 ? 0 : bytes.size() - 3;
  const size_t line = std::min(bytes.find("\r\n"), bytes.size());
  if (line > limits.target_bytes_max + kMethodBytesMax + sizeof(" HTTP/1.1 ")) {
    return Refuse(framing, Refusal::kTargetTooLong);
  }
  if (bytes.size() >= limits.head_bytes_max) return Refuse(framing, Refusal::kHeadTooLarge);
  return framing;
}

}  // namespace

Framing FrameRequest(const Framing& so_far, char* bytes, size_t size, const FramingLimits& limits) {
  Framing framing = so_far;
  if (framing.state != Framing::State::kIncomplete) return framing;
  if (framing.head_bytes == 0) {
    framing = FindHead(framing, {bytes, size}, limits);
    if (framing.state == Framing::State::kRefused || framing.head_bytes == 0) return framing;
    if (const auto refusal = HeadReader(bytes, framing.head_bytes, limits, &framing).Read()) {
      return Refuse(framing, *refusal);
    }
  }
  if (size - framing.head_bytes >= framing.body_bytes) framing.state = Framing::State::kComplete;
  return framing;
}

}  // namespace gantry::http
