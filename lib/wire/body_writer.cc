#include "lib/wire/body_writer.h"

#include <charconv>

#include "lib/base/json_text.h"

namespace gantry::wire {
namespace {

// RFC 8949: major types and the openings and end of what has no stated length.
constexpr uint8_t kUnsignedMajor = 0, kNegativeMajor = 1, kTextMajor = 3;
constexpr char kOpenList = '\x9f', kOpenMap = '\xbf', kBreak = '\xff';
constexpr char kFalse = '\xf4', kTrue = '\xf5';
constexpr std::string_view kReplacement = "\xef\xbf\xbd";

bool IsPlain(std::string_view text) {
  for (const char c : text) {
    const auto byte = static_cast<uint8_t>(c);  // char has no sign on arm64
    if (byte < 0x20 || byte >= 0x7f || c == '"' || c == '\\') return false;
  }
  return true;
}

std::string Replaced(std::string_view text) {
  std::string replaced;
  for (const char c : text) {
    if (static_cast<uint8_t>(c) < 0x80) {
      replaced += c;
    } else {
      replaced += kReplacement;
    }
  }
  return replaced;
}

template <typename Integer>
void AppendDecimal(std::string& out, Integer value) {
  char digits[24];
  const auto end = std::to_chars(digits, digits + sizeof(digits), value);
  out.append(digits, end.ptr);
}

}  // namespace

void BodyWriter::Separate() {
  if (!cbor_ && !first_) out_ += ',';
  first_ = false;
}

void BodyWriter::Head(uint8_t major, uint64_t value) {
  const auto type = static_cast<uint8_t>(major << 5);
  int bytes = 0;
  if (value < 24) {
    out_ += static_cast<char>(type | value);
  } else if (value <= 0xFF) {
    out_ += static_cast<char>(type | 24);
    bytes = 1;
  } else if (value <= 0xFFFF) {
    out_ += static_cast<char>(type | 25);
    bytes = 2;
  } else if (value <= 0xFFFFFFFF) {
    out_ += static_cast<char>(type | 26);
    bytes = 4;
  } else {
    out_ += static_cast<char>(type | 27);
    bytes = 8;
  }
  while (bytes-- > 0) out_ += static_cast<char>(value >> (8 * bytes) & 0xFF);
}

BodyWriter& BodyWriter::BeginObject() {
  Separate();
  out_ += cbor_ ? kOpenMap : '{';
  first_ = true;
  return *this;
}

BodyWriter& BodyWriter::EndObject() {
  out_ += cbor_ ? kBreak : '}';
  first_ = false;
  return *this;
}

BodyWriter& BodyWriter::BeginList() {
  Separate();
  out_ += cbor_ ? kOpenList : '[';
  first_ = true;
  return *this;
}

BodyWriter& BodyWriter::EndList() {
  out_ += cbor_ ? kBreak : ']';
  first_ = false;
  return *this;
}

BodyWriter& BodyWriter::Key(std::string_view key) {
  Separate();
  if (cbor_) {
    Head(kTextMajor, key.size());
    out_ += key;
  } else {
    out_ += '"';
    out_ += key;
    out_ += "\":";
  }
  first_ = true;
  return *this;
}

BodyWriter& BodyWriter::Text(std::string_view text) {
  Separate();
  if (cbor_) {
    if (!IsUtf8(text)) {
      const std::string replaced = Replaced(text);
      Head(kTextMajor, replaced.size());
      out_ += replaced;
      return *this;
    }
    Head(kTextMajor, text.size());
    out_ += text;
  } else if (IsPlain(text)) {
    out_ += '"';
    out_ += text;
    out_ += '"';
  } else {
    out_ += JsonQuote(text);
  }
  return *this;
}

BodyWriter& BodyWriter::Bool(bool value) {
  Separate();
  if (cbor_) {
    out_ += value ? kTrue : kFalse;
  } else {
    out_ += value ? "true" : "false";
  }
  return *this;
}

BodyWriter& BodyWriter::Unsigned(uint64_t value) {
  Separate();
  if (cbor_) {
    Head(kUnsignedMajor, value);
  } else {
    AppendDecimal(out_, value);
  }
  return *this;
}

BodyWriter& BodyWriter::Signed(int64_t value) {
  if (value >= 0) return Unsigned(static_cast<uint64_t>(value));
  Separate();
  if (cbor_) {
    Head(kNegativeMajor, static_cast<uint64_t>(-(value + 1)));
  } else {
    AppendDecimal(out_, value);
  }
  return *this;
}

}  // namespace gantry::wire
