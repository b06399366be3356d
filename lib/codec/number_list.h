// Lists of integers in a body, read in one go: an event of the parser for each integer would take
// ten times as long. What is not plain is left to the parser. Pure functions; thread-safe.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace gantry::wire {

// `text` begins behind the '[' of a JSON list. Appends its first integers, `most` at most, as far
// as they are plain digits below 10^18, and returns how many bytes they take: what is left then
// begins with an element, or with the ']'.
size_t TakeJsonNumbers(std::string_view text, size_t most, std::vector<uint64_t>* numbers);

// The same for `text` behind the head of a CBOR list of unknown length: its first unsigned integers
// below 2^63.
size_t TakeCborNumbers(std::string_view text, size_t most, std::vector<uint64_t>* numbers);

// `text` begins with a CBOR item. When that is a list of known length, of 2 to `most` such integers
// alone, appends all but the last and returns the bytes up to that one; else 0, and nothing is
// appended.
size_t TakeCborList(std::string_view text, size_t most, std::vector<uint64_t>* numbers);

// `text` begins with a CBOR item. When that is a byte string of known length, that holds 2 to
// `most` integers of 32 bits, the lowest byte first, appends them all and returns the item's bytes;
// else 0, and nothing is appended.
size_t TakeCborPacked(std::string_view text, size_t most, std::vector<uint64_t>* numbers);

// Bytes of such an integer.
constexpr size_t kPackedBytes = 4;

}  // namespace gantry::wire
