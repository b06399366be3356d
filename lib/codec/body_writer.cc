#include "lib/codec/body_writer.h"

#include <endian.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>

#include "lib/base/json_text.h"

namespace gantry::wire {
namespace {

// RFC 8949: major types and the openings and end of what has no stated length.
constexpr uint8_t kUnsignedMajor = 0, kNegativeMajor = 1, kBytesMajor = 2, kTextMajor = 3,
                  kListMajor = 4;
constexpr char kOpenList = '\x9f', kOpenMap = '\xbf', kBreak = '\xff';
constexpr std::string_view kFalse = "\xf4", kTrue = "\xf5", kNull = "\xf6";
constexpr char kReal = '\xfb';
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
constexpr size_t kIntegerBytesMax = 20;
constexpr size_t kDecimalBytesMax = 32;  // also of a real number

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

// Grows at least to twice the size: most of what is written is short.
inline char* BodyWriter::Room(size_t bytes) {
  if (out_.size() - size_ < bytes) out_.resize(std::max(2 * out_.size(), size_ + bytes));
  return out_.data() + size_;
}

// One byte at most.
inline char* BodyWriter::Separated(char* at) {
  if (!cbor_ && !first_) *at++ = ',';
  first_ = false;
  return at;
}

void BodyWriter::Open(char c) {
  Append({&c, 1});
  first_ = true;
}

void BodyWriter::Close(char c) {
  char* const at = Room(1);
  *at = c;
  WroteUpTo(at + 1);
  first_ = false;
}

void BodyWriter::Append(std::string_view text) {
  WroteUpTo(Copy(Separated(Room(text.size() + 1)), text));
}

template <typename Number>
void BodyWriter::AppendDecimal(Number value) {
  char* const at = Separated(Room(kDecimalBytesMax + 1));
  WroteUpTo(std::to_chars(at, at + kDecimalBytesMax, value).ptr);
}

// A list in one go. In CBOR it has a stated length, which takes fewer bytes.
BodyWriter& BodyWriter::Numbers(std::span<const uint64_t> values) {
  const size_t bytes_max = cbor_ ? kHeadBytesMax : kIntegerBytesMax + 1;
  char* at = Separated(Room(bytes_max * values.size() + kHeadBytesMax));
  if (cbor_) {
    at = WriteHead(at, kListMajor, values.size());
    for (const uint64_t value : values) at = WriteHead(at, kUnsignedMajor, value);
  } else {
    *at++ = '[';
    first_ = true;
    for (const uint64_t value : values) {
      at = Separated(at);
      at = std::to_chars(at, at + kIntegerBytesMax, value).ptr;
    }
    *at++ = ']';
    first_ = false;
  }
  WroteUpTo(at);
  return *this;
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

BodyWriter& BodyWriter::AnyKey(std::string_view key) {
  if (cbor_ || IsPlain(key)) return Key(key);
  Append(JsonQuote(key));
  Close(':');
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
  Append(cbor_ ? (value ? kTrue : kFalse) : (value ? "true" : "false"));
  return *this;
}

BodyWriter& BodyWriter::Unsigned(uint64_t value) {
  if (cbor_) {
    WroteUpTo(WriteHead(Room(kHeadBytesMax), kUnsignedMajor, value));
  } else {
    AppendDecimal(value);
  }
  return *this;
}

BodyWriter& BodyWriter::Signed(int64_t value) {
  if (value >= 0) return Unsigned(static_cast<uint64_t>(value));
  if (cbor_) {
    WroteUpTo(WriteHead(Room(kHeadBytesMax), kNegativeMajor, ~static_cast<uint64_t>(value)));
  } else {
    AppendDecimal(value);
  }
  return *this;
}

BodyWriter& BodyWriter::Real(double value) {
  if (!std::isfinite(value)) return Null();
  if (cbor_) {
    const uint64_t bytes = htobe64(std::bit_cast<uint64_t>(value));
    char* const at = Room(1 + sizeof(bytes));
    *at = kReal;
    std::memcpy(at + 1, &bytes, sizeof(bytes));
    WroteUpTo(at + 1 + sizeof(bytes));
  } else {
    AppendDecimal(value);
  }
  return *this;
}

BodyWriter& BodyWriter::Null() {
  Append(cbor_ ? kNull : "null");
  return *this;
}

BodyWriter& BodyWriter::Packed(std::span<const uint64_t> values) {
  char* at = WriteHead(Room(kHeadBytesMax + 4 * values.size()), kBytesMajor, 4 * values.size());
  for (const uint64_t value : values) {
    const uint32_t bytes = htole32(static_cast<uint32_t>(value));
    std::memcpy(std::exchange(at, at + sizeof(bytes)), &bytes, sizeof(bytes));
  }
  WroteUpTo(at);
  return *this;
}

}  // namespace gantry::wire
