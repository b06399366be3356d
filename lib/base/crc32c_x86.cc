// The crc32 instruction takes three cycles and can start in each: three lanes of the data keep it
// busy, and their registers are joined afterwards.
#include <nmmintrin.h>

#include <array>
#include <cstring>

#include "lib/base/crc32c.h"

namespace gantry {
namespace {

constexpr size_t kLaneBytes = 1024;

// The register after kLaneBytes zero bytes, for each value of each of its bytes.
using ShiftTable = std::array<std::array<uint32_t, 256>, 4>;

ShiftTable MakeShiftTable() {
  static constexpr std::array<uint8_t, kLaneBytes> kZeros = {};
  ShiftTable table = {};
  for (size_t byte = 0; byte < 4; ++byte) {
    for (uint32_t value = 0; value < 256; ++value) {
      // Crc32cByTable inverts the register before and after.
      table[byte][value] = ~Crc32cByTable(~(value << (8 * byte)), kZeros.data(), kZeros.size());
    }
  }
  return table;
}

uint32_t Shift(const ShiftTable& table, uint64_t crc) {
  return table[0][crc & 0xff] ^ table[1][(crc >> 8) & 0xff] ^ table[2][(crc >> 16) & 0xff] ^
         table[3][(crc >> 24) & 0xff];
}

uint64_t Word(const uint8_t* at) {
  uint64_t word = 0;
  std::memcpy(&word, at, sizeof(word));
  return word;
}

__attribute__((target("sse4.2"))) uint32_t Compute(uint32_t before, const void* data,
                                                   size_t bytes) {
  static const ShiftTable table = MakeShiftTable();
  const auto* at = static_cast<const uint8_t*>(data);
  uint64_t crc = ~before;
  while (bytes >= 3 * kLaneBytes) {
    uint64_t second = 0;
    uint64_t third = 0;
    for (size_t i = 0; i < kLaneBytes; i += sizeof(uint64_t)) {
      crc = _mm_crc32_u64(crc, Word(at + i));
      second = _mm_crc32_u64(second, Word(at + kLaneBytes + i));
      third = _mm_crc32_u64(third, Word(at + 2 * kLaneBytes + i));
    }
    crc = Shift(table, crc) ^ second;
    crc = Shift(table, crc) ^ third;
    at += 3 * kLaneBytes;
    bytes -= 3 * kLaneBytes;
  }
  for (; bytes >= sizeof(uint64_t); bytes -= sizeof(uint64_t), at += sizeof(uint64_t)) {
    crc = _mm_crc32_u64(crc, Word(at));
  }
  auto last = static_cast<uint32_t>(crc);
  for (; bytes > 0; --bytes, ++at) last = _mm_crc32_u8(last, *at);
  return ~last;
}

}  // namespace

Crc32cFunction Crc32cByInstruction() {
  return __builtin_cpu_supports("sse4.2") != 0 ? &Compute : nullptr;
}

}  // namespace gantry
