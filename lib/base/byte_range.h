// A range of bytes, and the only arithmetic on offsets and lengths that other code may use. Nothing
// here wraps around. Values are in bytes. Stateless; thread-safe.
#pragma once

#include <cstdint>
#include <limits>

namespace gantry {

struct ByteRange {
  uint64_t offset = 0;
  uint64_t length = 0;

  bool operator==(const ByteRange&) const = default;
};

// Sets *end to offset + length. Returns false when the sum does not fit 64 bits.
constexpr bool EndOf(uint64_t offset, uint64_t length, uint64_t* end) {
  if (length > std::numeric_limits<uint64_t>::max() - offset) return false;
  *end = offset + length;
  return true;
}

// Returns true when [offset, offset + length) lies within [0, size).
constexpr bool Fits(uint64_t offset, uint64_t length, uint64_t size) {
  return offset <= size && length <= size - offset;
}
constexpr bool Fits(const ByteRange& range, uint64_t size) {
  return Fits(range.offset, range.length, size);
}

// Sets *product to a * b. Returns false when the product does not fit 64 bits.
constexpr bool Product(uint64_t a, uint64_t b, uint64_t* product) {
  return !__builtin_mul_overflow(a, b, product);
}

// Returns true when the two share at least one byte. REQUIRES that EndOf succeeded for both.
constexpr bool Overlaps(const ByteRange& a, const ByteRange& b) {
  return a.length != 0 && b.length != 0 && a.offset < b.offset + b.length &&
         b.offset < a.offset + a.length;
}

}  // namespace gantry
