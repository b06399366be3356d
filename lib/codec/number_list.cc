#include "lib/codec/number_list.h"

#include <endian.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>

namespace gantry::wire {
namespace {

constexpr std::ptrdiff_t kDigitsMax = 18;  // which every number of 63 bits has room for

bool IsSpace(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

const char* SkipSpaces(const char* at, const char* end) {
  while (at != end && IsSpace(*at)) ++at;
  return at;
}

// The digits at the front of eight characters, the first one in the lowest byte, and their value.
// What is no digit has a high bit in `after`: above 9 once '0' is taken away.
int DigitsOf(uint64_t characters, uint64_t* value) {
  constexpr uint64_t kEach = 0x0101010101010101;
  const uint64_t digits = characters ^ (kEach * '0');
  const uint64_t after = ((digits + kEach * (0x7f - 9)) | digits) & (kEach * 0x80);
  const int count = std::countr_zero(after) / 8;
  if (count == 0) return 0;
  // As eight digits with zeros before them; then pairs, fours and all eight are added up at once.
  uint64_t sums = digits << (8 * (8 - count));
  sums = (sums * 10 + (sums >> 8)) & 0x00ff00ff00ff00ff;
  sums = (sums * 100 + (sums >> 16)) & 0x0000ffff0000ffff;
  *value = (sums * 10000 + (sums >> 32)) & 0xffffffff;
  return count;
}

// The number that begins here, without a look at what follows; returns its digits: 0 for what is no
// plain number, or one with more of them than kDigitsMax.
std::ptrdiff_t TakeDigits(const char* element, const char* end, uint64_t* value) {
  if (end - element > 8) {
    uint64_t characters = 0;
    std::memcpy(&characters, element, sizeof(characters));
    const int digits = DigitsOf(le64toh(characters), value);
    if (digits < 8) return digits > 1 && *element == '0' ? 0 : digits;
  }
  *value = 0;
  const char* at = element;
  for (; at != end && *at >= '0' && *at <= '9'; ++at) {
    if (at - element == kDigitsMax) return 0;
    *value = *value * 10 + static_cast<uint64_t>(*at - '0');
  }
  return at - element > 1 && *element == '0' ? 0 : at - element;
}

// CBOR: the first byte of an item is its type and either a small argument or how long that is.
constexpr unsigned char kTypeBits = 0xe0;
constexpr unsigned char kUnsigned = 0x00;
constexpr unsigned char kBytes = 0x40;
constexpr unsigned char kCborList = 0x80;

// The argument of an item of this type, highest byte first. False: it is another one, of unknown
// length, or cut off.
bool TakeArgument(unsigned char type, const unsigned char** at, const unsigned char* end,
                  uint64_t* argument) {
  if (*at == end || (**at & kTypeBits) != type) return false;
  const unsigned info = *(*at)++ & 0x1f;
  if (info < 24) {
    *argument = info;
    return true;
  }
  const std::ptrdiff_t bytes = std::ptrdiff_t{1} << (info & 3);
  if (info > 27 || end - *at < bytes) return false;
  if (end - *at >= 8) {  // read in one go, however many of them it has: lengths mix in a list
    std::memcpy(argument, *at, 8);
    *argument = be64toh(*argument) >> (64 - 8 * bytes);
    *at += bytes;
    return true;
  }
  *argument = 0;
  for (std::ptrdiff_t i = 0; i < bytes; ++i) *argument = *argument << 8 | *(*at)++;
  return true;
}

bool TakeNumber(const unsigned char** at, const unsigned char* end, uint64_t* number) {
  return TakeArgument(kUnsigned, at, end, number) && *number >> 63 == 0;
}

}  // namespace

size_t TakeJsonNumbers(std::string_view text, size_t most, std::vector<uint64_t>* numbers) {
  const char* const end = text.data() + text.size();
  const char* element = SkipSpaces(text.data(), end);
  for (size_t taken = 0; taken < most; ++taken) {
    uint64_t value = 0;
    const std::ptrdiff_t digits = TakeDigits(element, end, &value);
    if (digits == 0) break;
    const char* at = SkipSpaces(element + digits, end);
    if (at == end || (*at != ',' && *at != ']')) break;
    const bool is_last = *at == ']';
    if (!is_last) at = SkipSpaces(at + 1, end);
    // A list that ends with a comma is no list: the parser finds it as it is.
    if (!is_last && (at == end || *at == ']')) break;
    numbers->push_back(value);
    element = at;
    if (is_last) break;
  }
  return static_cast<size_t>(element - text.data());
}

size_t TakeCborNumbers(std::string_view text, size_t most, std::vector<uint64_t>* numbers) {
  const auto* const begin = reinterpret_cast<const unsigned char*>(text.data());
  const auto* element = begin;
  const auto* at = begin;
  uint64_t number = 0;
  for (size_t taken = 0; taken < most && TakeNumber(&at, begin + text.size(), &number); ++taken) {
    numbers->push_back(number);
    element = at;
  }
  return static_cast<size_t>(element - begin);
}

size_t TakeCborList(std::string_view text, size_t most, std::vector<uint64_t>* numbers) {
  const auto* const begin = reinterpret_cast<const unsigned char*>(text.data());
  const auto* const end = begin + text.size();
  const auto* at = begin;
  uint64_t count = 0;
  if (!TakeArgument(kCborList, &at, end, &count)) return 0;
  if (count < 2 || count > most || count > static_cast<uint64_t>(end - at)) return 0;
  const size_t before = numbers->size();
  numbers->resize(before + count);
  const auto* last = at;
  for (uint64_t i = 0; i < count; ++i) {
    last = at;
    if (TakeNumber(&at, end, &(*numbers)[before + i])) continue;
    numbers->resize(before);
    return 0;
  }
  numbers->pop_back();
  return static_cast<size_t>(last - begin);
}

size_t TakeCborPacked(std::string_view text, size_t most, std::vector<uint64_t>* numbers) {
  const auto* const begin = reinterpret_cast<const unsigned char*>(text.data());
  const auto* const end = begin + text.size();
  const auto* at = begin;
  uint64_t bytes = 0;
  if (!TakeArgument(kBytes, &at, end, &bytes)) return 0;
  const uint64_t count = bytes / kPackedBytes;
  if (bytes % kPackedBytes != 0 || bytes > static_cast<uint64_t>(end - at)) return 0;
  if (count < 2 || count > most) return 0;
  const size_t before = numbers->size();
  numbers->resize(before + count);
  for (uint64_t i = 0; i < count; ++i, at += kPackedBytes) {
    uint32_t number = 0;
    std::memcpy(&number, at, kPackedBytes);
    (*numbers)[before + i] = le32toh(number);
  }
  return static_cast<size_t>(at - begin);
}

}  // namespace gantry::wire
