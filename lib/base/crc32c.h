// CRC32C (Castagnoli, RFC 3720 B.4) of bytes that come in parts. With the processor's instruction
// where there is one. Stateless; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gantry {

// The checksum of what came before followed by these bytes; begin with 0.
uint32_t Crc32c(uint32_t before, const void* data, size_t bytes);

// The same by table: for machines without the instruction, and to compare with.
uint32_t Crc32cByTable(uint32_t before, const void* data, size_t bytes);

using Crc32cFunction = uint32_t (*)(uint32_t before, const void* data, size_t bytes);
// Null when this processor has no instruction for it. One definition for each architecture.
Crc32cFunction Crc32cByInstruction();

}  // namespace gantry
