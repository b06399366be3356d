#include "sidecar/transport/tcp/channel/crc32c.h"

#include <isa-l/crc.h>

#include <algorithm>

namespace gantry::transport {

uint32_t Crc32c(uint32_t before, const void* data, size_t bytes) {
  constexpr size_t kStep = size_t{1} << 30;  // the library counts in int
  // It reads only, whatever its signature says; the register is inverted before and after.
  auto* at = static_cast<unsigned char*>(const_cast<void*>(data));
  uint32_t inverted = ~before;
  for (size_t step = 0; bytes > 0; at += step, bytes -= step) {
    step = std::min(bytes, kStep);
    inverted = crc32_iscsi(at, static_cast<int>(step), inverted);
  }
  return ~inverted;
}

}  // namespace gantry::transport
