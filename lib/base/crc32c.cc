#include "lib/base/crc32c.h"

#include <array>
#include <cstring>

namespace gantry {
namespace {

constexpr uint32_t kPolynomial = 0x82f63b78;  // bits reversed
constexpr size_t kSlices = 8;

// kTables[k][b]: what byte b does to the register when k zero bytes follow it.
constexpr std::array<std::array<uint32_t, 256>, kSlices> MakeTables() {
  std::array<std::array<uint32_t, 256>, kSlices> tables = {};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? kPolynomial : 0);
    tables[0][byte] = value;
  }
  for (size_t k = 1; k < kSlices; ++k) {
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint32_t value = tables[k - 1][byte];
      tables[k][byte] = (value >> 8) ^ tables[0][value & 0xff];
    }
  }
  return tables;
}
constexpr auto kTables = MakeTables();

}  // namespace

uint32_t Crc32cByTable(uint32_t before, const void* data, size_t bytes) {
  const auto* at = static_cast<const uint8_t*>(data);
  uint32_t crc = ~before;
  for (; bytes >= kSlices; bytes -= kSlices, at += kSlices) {
    uint64_t word = 0;
    std::memcpy(&word, at, sizeof(word));
    word ^= crc;
    crc = 0;
    for (size_t k = 0; k < kSlices; ++k) {
      crc ^= kTables[kSlices - 1 - k][(word >> (8 * k)) & 0xff];
    }
  }
  for (; bytes > 0; --bytes, ++at) crc = (crc >> 8) ^ kTables[0][(crc ^ *at) & 0xff];
  return ~crc;
}

uint32_t Crc32c(uint32_t before, const void* data, size_t bytes) {
  static const Crc32cFunction function =
      Crc32cByInstruction() != nullptr ? Crc32cByInstruction() : &Crc32cByTable;
  return function(before, data, bytes);
}

}  // namespace gantry
