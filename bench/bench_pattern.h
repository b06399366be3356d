// What the benchmark moves: which blocks in which order, bytes that tell where they came from, and
// the check that each arrived where it should. Stateless; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bench/bench_options.h"

namespace gantry::bench {

// Block local[i] pairs with block remote[i].
struct BlockPairs {
  std::vector<uint64_t> local;
  std::vector<uint64_t> remote;
};

// Blocks of one buffer, and how many of them one transfer names.
uint64_t BlocksPerBuffer(const BenchOptions& options);
uint64_t BlocksPerTransfer(const BenchOptions& options);

// Every block once on either side; two independent permutations when the order is random.
BlockPairs MakePairs(uint64_t blocks, BenchOptions::Order order, uint64_t seed);

// The same ids in each of so many buffers that lie one after the other, as blocks of the whole:
// block b of buffer k is block k * (blocks of a buffer) + b. REQUIRES every block of a buffer once.
BlockPairs InAllBuffers(const BlockPairs& pairs, uint64_t buffers);

// Each 8 bytes say where they are. REQUIRES a multiple of 8 bytes.
void FillPattern(std::span<std::byte> bytes, uint64_t seed);
inline constexpr std::byte kCanary{0xEE};
void FillCanary(std::span<std::byte> bytes, std::byte canary = kCanary);
bool IsCanary(std::span<const std::byte> bytes, std::byte canary = kCanary);

// Which block of a pattern-filled buffer each block of `destination` has to be a copy of.
struct Expected {
  std::span<const uint64_t> destination_blocks;
  std::span<const uint64_t> source_blocks;
  uint64_t block_bytes = 0;
  uint64_t seed = 0;
};
// Looks at every byte; says which block is wrong first, or nothing.
std::optional<std::string> FindMismatch(std::span<const std::byte> destination,
                                        const Expected& expected);

}  // namespace gantry::bench
