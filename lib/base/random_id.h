// Unguessable identifiers from the kernel's random source: generations, lease tokens, tickets.
// Thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "lib/base/result.h"

namespace gantry {

// Returns a random 64-bit number that is never 0 (0 means "no generation").
uint64_t RandomGeneration();

// Returns 128 random bits as 32 lower-case hex digits.
std::string RandomToken();

// Returns 16 lower-case hex digits, a generation's form in JSON (JavaScript numbers end at 2^53).
std::string HexOf(uint64_t value);
Result<uint64_t> ParseHex(std::string_view text);

// Returns true when both are equal. The time does not depend on where they differ.
bool EqualSecrets(std::string_view a, std::string_view b);

}  // namespace gantry
