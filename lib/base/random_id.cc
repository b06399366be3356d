#include "lib/base/random_id.h"

#include <sys/random.h>

#include <cerrno>
#include <cstdlib>

namespace gantry {
namespace {

uint64_t Random64() {
  uint64_t value = 0;
  // Up to 256 bytes come whole or not at all; EINTR can only come before the pool is ready.
  while (::getrandom(&value, sizeof(value), 0) != static_cast<ssize_t>(sizeof(value))) {
    if (errno != EINTR) std::abort();  // an identifier that is not random fences nothing
  }
  return value;
}

}  // namespace

uint64_t RandomGeneration() {
  uint64_t value = 0;
  while (value == 0) value = Random64();
  return value;
}

std::string RandomToken() { return HexOf(Random64()) + HexOf(Random64()); }

std::string HexOf(uint64_t value) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text(16, '0');
  for (size_t i = 16; i-- > 0; value >>= 4) text[i] = kDigits[value & 15];
  return text;
}

Result<uint64_t> ParseHex(std::string_view text) {
  if (text.starts_with("0x")) text.remove_prefix(2);
  if (text.empty() || text.size() > 16) {
    return Fail(ErrorCode::kInvalidArgument, "a hexadecimal number has 1 to 16 digits");
  }
  uint64_t value = 0;
  for (char c : text) {
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                             : -1;
    if (digit < 0) return Fail(ErrorCode::kInvalidArgument, "not a hexadecimal number");
    value = (value << 4) | static_cast<uint64_t>(digit);
  }
  return value;
}

bool EqualSecrets(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned difference = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i]);
  }
  return difference == 0;
}

}  // namespace gantry
