// Unguessable identifiers from the kernel's random source: generations, lease tokens, tickets.
// Thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "lib/base/result.h"

namespace gantry {

// A random 64-bit number that is never 0 (0 means "no generation").
uint64_t RandomGeneration();

// 128 random bits as 32 lower-case hex digits.
std::string RandomToken();

// 16 lower-case hex digits, the form of a generation in JSON (JavaScript numbers end at 2^53).
std::string HexOf(uint64_t value);
Result<uint64_t> ParseHex(std::string_view text);

// True when both are equal; takes the same time wherever they differ.
bool EqualSecrets(std::string_view a, std::string_view b);

}  // namespace gantry
