// CRC32C (Castagnoli, RFC 3720 B.4) of bytes that arrive in parts. Stateless; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gantry::transport {

// Returns the checksum of all earlier bytes followed by these. `before` is the previous result; 0
// at the start.
uint32_t Crc32c(uint32_t before, const void* data, size_t bytes);

}  // namespace gantry::transport
