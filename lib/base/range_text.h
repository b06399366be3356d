// A range of addresses as error messages show it. Stateless; thread-safe.
#pragma once

#include <cstdint>
#include <string>

#include "lib/base/random_id.h"

namespace gantry {

// "[0x7f00, +4096)": the first address in hex and the length in bytes.
inline std::string RangeText(uint64_t address, uint64_t bytes) {
  return "[0x" + HexOf(address) + ", +" + std::to_string(bytes) + ")";
}

}  // namespace gantry
