#include "lib/codec/body_writer.h"

#include <algorithm>
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

constexpr size_t kHeadBytesMax = 9;
constexpr size_t kDecimalBytesMax = 20;

// The first bytes of an item: its type, and a length or value.
char* WriteHead(char* at, uint8_t major, uint64_t value) {
  const auto type = static_cast<uint8_t>(major << 5);
  if (value < 24) {
    *at = static_cast<char>(type | value);
    return at + 1;
  }
  const int log = value <= 0xFF ? 0 : value <= 0xFFFF ? 1 : value <= 0xFFFFFFFF ? 2 : 3;
  *at++ = static_cast<char>(type | (24 + log));
  for (int bytes = 1 << log; bytes-- > 0;) *at++ = static_cast<char>(value >> (8 * bytes) & 0xFF);
  return at;
}

char* Copy(char* at, std::string_view text) { return std::copy(text.begin(), text.end(), at); }

}  // namespace

// At least to twice the size: most of what is written is short.
void BodyWriter::Grow(size_t bytes) { out_.resize(std::max(2 * out_.size(), size_ + bytes)); }

// One byte at most.
char* BodyWriter::Separated(char* at) {
  if (!cbor_ && !first_) *at++ = ',';
  first_ = false;
  return at;
}

void BodyWriter::Put(char c) {
  char* const at = Separated(Room(2));
  *at = c;
  WroteUpTo(at + 1);
}

void BodyWriter::Open(char c) {
  Put(c);
  first_ = true;
}

void BodyWriter::Close(char c) {
  char* const at = Room(1);
  *at = c;
  WroteUpTo(at + 1);
  first_ = false;
}

void BodyWriter::Head(uint8_t major, uint64_t value) {
  WroteUpTo(WriteHead(Room(kHeadBytesMax), major, value));
}

void BodyWriter::Append(std::string_view text) {
  WroteUpTo(Copy(Separated(Room(text.size() + 1)), text));
}

template <typename Integer>
void BodyWriter::AppendDecimal(Integer value) {
  char* const at = Separated(Room(kDecimalBytesMax + 1));
  WroteUpTo(std::to_chars(at, at + kDecimalBytesMax, value).ptr);
}

BodyWriter& BodyWriter::BeginObject() {
  Open(cbor_ ? kOpenMap : '{');
  return *this;
}

BodyWriter& BodyWriter::EndObject() {
  Close(cbor_ ? kBreak : '}');
  return *this;
}

BodyWriter& BodyWriter::BeginList() {
  Open(cbor_ ? kOpenList : '[');
  return *this;
}

BodyWriter& BodyWriter::EndList() {
  Close(cbor_ ? kBreak : ']');
  return *this;
}

BodyWriter& BodyWriter::Key(std::string_view key) {
  char* at = Room(key.size() + kHeadBytesMax);
  if (cbor_) {
    at = Copy(WriteHead(at, kTextMajor, key.size()), key);
  } else {
    at = Separated(at);
    *at++ = '"';
    at = Copy(at, key);
    *at++ = '"';
    *at++ = ':';
  }
  WroteUpTo(at);
  first_ = true;
  return *this;
}

BodyWriter& BodyWriter::Text(std::string_view text) {
  if (cbor_) {
    if (!IsUtf8(text)) return Text(Replaced(text));
    char* const at = Room(text.size() + kHeadBytesMax);
    WroteUpTo(Copy(WriteHead(at, kTextMajor, text.size()), text));
  } else if (IsPlain(text)) {
    char* at = Separated(Room(text.size() + 3));
    *at++ = '"';
    at = Copy(at, text);
    *at++ = '"';
    WroteUpTo(at);
  } else {
    Append(JsonQuote(text));
  }
  return *this;
}

BodyWriter& BodyWriter::Bool(bool value) {
  if (cbor_) {
    Put(value ? kTrue : kFalse);
  } else {
    Append(value ? "true" : "false");
  }
  return *this;
}

BodyWriter& BodyWriter::Unsigned(uint64_t value) {
  if (cbor_) {
    Head(kUnsignedMajor, value);
  } else {
    AppendDecimal(value);
  }
  return *this;
}

BodyWriter& BodyWriter::Signed(int64_t value) {
  if (value >= 0) return Unsigned(static_cast<uint64_t>(value));
  if (cbor_) {
    Head(kNegativeMajor, static_cast<uint64_t>(-(value + 1)));
  } else {
    AppendDecimal(value);
  }
  return *this;
}

}  // namespace gantry::wire
