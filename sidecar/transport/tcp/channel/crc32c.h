// CRC32C (Castagnoli, RFC 3720 B.4) of bytes that come in parts. Stateless; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gantry::transport {

// The checksum of what came before followed by these bytes; begin with 0.
uint32_t Crc32c(uint32_t before, const void* data, size_t bytes);

}  // namespace gantry::transport
