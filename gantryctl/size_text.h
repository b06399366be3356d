// Sizes, times and counts between people and numbers. Thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/result.h"

namespace gantry::gantryctl {

// "4096", "64KiB", "1 GiB", "1.5MiB" (powers of 1024, also Ki, Mi, Gi, Ti) or "1MB" (of 1000). A
// bare K, M or G is refused: it may mean either.
Result<uint64_t> ParseSize(std::string_view text);

// Sizes with commas between them.
Result<std::vector<uint64_t>> ParseSizes(std::string_view text);

std::string FormatSize(uint64_t bytes);               // "64 KiB", "1.5 GiB", "17 B"
std::string FormatMicroseconds(double microseconds);  // "850 us", "1.2 ms", "3.4 s"
std::string FormatSeconds(double seconds);            // "42 s", "3 min", "2 h 5 min", "3 d 4 h"
std::string FormatFixed(double value, int digits);

}  // namespace gantry::gantryctl
