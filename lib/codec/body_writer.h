// Writes a response as JSON or CBOR (maps and lists of unknown length) straight into a string. The
// caller opens and closes in order. Used by one thread at a time.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "lib/codec/schema_reader.h"

namespace gantry::wire {

class BodyWriter {
 public:
  explicit BodyWriter(BodyFormat format)
      : cbor_(format == BodyFormat::kCbor), out_(kUsualBytes, '\0') {}
  BodyWriter(BodyWriter&& other) noexcept
      : cbor_(other.cbor_),
        first_(other.first_),
        out_(std::move(other.out_)),
        size_(std::exchange(other.size_, 0)) {}

  BodyWriter& BeginObject();
  BodyWriter& EndObject();
  BodyWriter& BeginList();
  BodyWriter& EndList();

  // `key` needs no escaping.
  BodyWriter& Key(std::string_view key);
  BodyWriter& Text(std::string_view text);  // bytes that are no UTF-8 become U+FFFD
  BodyWriter& Bool(bool value);
  BodyWriter& Unsigned(uint64_t value);
  BodyWriter& Signed(int64_t value);

  BodyWriter& Field(std::string_view key, std::string_view text) { return Key(key).Text(text); }
  BodyWriter& Field(std::string_view key, const char* text) { return Key(key).Text(text); }
  BodyWriter& Field(std::string_view key, bool value) { return Key(key).Bool(value); }
  template <std::unsigned_integral Integer>
  BodyWriter& Field(std::string_view key, Integer value) {
    return Key(key).Unsigned(value);
  }
  template <std::signed_integral Integer>
  BodyWriter& Field(std::string_view key, Integer value) {
    return Key(key).Signed(value);
  }
  BodyWriter& OptionalField(std::string_view key, std::string_view text) {
    return text.empty() ? *this : Key(key).Text(text);
  }

  std::string Take() {
    out_.resize(std::exchange(size_, 0));
    return std::move(out_);
  }

 private:
  // The place of the next bytes, of which there are at most so many.
  char* Room(size_t bytes) {
    if (out_.size() - size_ < bytes) Grow(bytes);
    return out_.data() + size_;
  }
  void Grow(size_t bytes);
  void WroteUpTo(const char* end) { size_ = static_cast<size_t>(end - out_.data()); }
  char* Separated(char* at);
  void Put(char c);
  void Open(char c);
  void Close(char c);
  void Head(uint8_t major, uint64_t value);
  void Append(std::string_view text);
  template <typename Integer>
  void AppendDecimal(Integer value);

  static constexpr size_t kUsualBytes = 1024;  // of a transfer, which is the most frequent

  const bool cbor_;
  bool first_ = true;  // nothing was written since the last opening
  std::string out_;    // written up to size_, with room behind
  size_t size_ = 0;
};

}  // namespace gantry::wire
