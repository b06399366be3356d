// Writes a body as JSON or CBOR (maps and lists of unknown length) straight into a string:
// responses of the sidecar and requests of the client. The caller opens and closes in order. Used
// by one thread at a time.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "lib/codec/schema_reader.h"

namespace gantry::wire {

class BodyWriter {
 public:
  // `expected`: more bytes than are usual for one body.
  explicit BodyWriter(BodyFormat format, size_t expected = 0)
      : cbor_(format == BodyFormat::kCbor), out_(kUsualBytes + expected, '\0') {}
  BodyWriter(BodyWriter&& other) noexcept
      : cbor_(other.cbor_),
        first_(other.first_),
        out_(std::move(other.out_)),
        size_(std::exchange(other.size_, 0)) {}

  BodyWriter& BeginObject();
  BodyWriter& EndObject();
  BodyWriter& BeginList();
  BodyWriter& EndList();

  // `key` needs no escaping; any text may be an AnyKey.
  BodyWriter& Key(std::string_view key);
  BodyWriter& AnyKey(std::string_view key);
  BodyWriter& Text(std::string_view text);  // bytes that are no UTF-8 become U+FFFD
  BodyWriter& Bool(bool value);
  BodyWriter& Unsigned(uint64_t value);
  BodyWriter& Signed(int64_t value);
  BodyWriter& Real(double value);  // null in the place of what is no number
  BodyWriter& Null();
  // CBOR alone: a byte string of 4 bytes for each, the lowest first. Shorter than a list, and read
  // faster. REQUIRES that they fit.
  BodyWriter& Packed(std::span<const uint64_t> values);

  // A text, a truth value or a number, or a list of such.
  template <typename Item>
  BodyWriter& Write(const Item& item) {
    if constexpr (std::is_same_v<Item, bool>) {
      return Bool(item);
    } else if constexpr (std::unsigned_integral<Item>) {
      return Unsigned(item);
    } else if constexpr (std::signed_integral<Item>) {
      return Signed(item);
    } else if constexpr (std::floating_point<Item>) {
      return Real(item);
    } else if constexpr (std::is_convertible_v<const Item&, std::string_view>) {
      return Text(item);
    } else if constexpr (std::is_convertible_v<const Item&, std::span<const uint64_t>>) {
      return Numbers(item);
    } else {
      BeginList();
      for (const auto& element : item) Write(element);
      return EndList();
    }
  }
  template <typename Item>
  BodyWriter& Field(std::string_view key, const Item& item) {
    return Key(key).Write(item);
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
  char* Room(size_t bytes);
  void WroteUpTo(const char* end) { size_ = static_cast<size_t>(end - out_.data()); }
  char* Separated(char* at);
  void Open(char c);
  void Close(char c);
  void Append(std::string_view text);
  template <typename Number>
  void AppendDecimal(Number value);
  BodyWriter& Numbers(std::span<const uint64_t> values);

  static constexpr size_t kUsualBytes = 1024;  // of a transfer, which is the most frequent

  const bool cbor_;
  bool first_ = true;  // nothing was written since the last opening
  std::string out_;    // written up to size_, with room behind
  size_t size_ = 0;
};

}  // namespace gantry::wire
