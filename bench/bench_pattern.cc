#include "bench/bench_pattern.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>

namespace gantry::bench {
namespace {

constexpr uint64_t kMultiplier = 0x9E3779B97F4A7C15;  // odd: no two words of a buffer are equal

uint64_t WordAt(uint64_t index, uint64_t seed) { return (index * kMultiplier) ^ seed; }

std::vector<uint64_t> Numbers(uint64_t count) {
  std::vector<uint64_t> numbers(count);
  std::iota(numbers.begin(), numbers.end(), uint64_t{0});
  return numbers;
}

bool BlockMatches(const std::byte* block, uint64_t first_word, uint64_t words, uint64_t seed) {
  uint64_t difference = 0;
  for (uint64_t i = 0; i < words; ++i) {
    uint64_t word;
    std::memcpy(&word, block + i * sizeof(word), sizeof(word));
    difference |= word ^ WordAt(first_word + i, seed);
  }
  return difference == 0;
}

}  // namespace

uint64_t BlocksPerBuffer(const BenchOptions& options) {
  return options.bytes / options.block_bytes / options.buffers;
}

uint64_t BlocksPerTransfer(const BenchOptions& options) {
  const uint64_t blocks = BlocksPerBuffer(options);
  return options.batch == 0 ? blocks : std::min(options.batch, blocks);
}

BlockPairs MakePairs(uint64_t blocks, BenchOptions::Order order, uint64_t seed) {
  BlockPairs pairs{Numbers(blocks), Numbers(blocks)};
  if (order == BenchOptions::Order::kRandom) {
    std::mt19937_64 random(seed);
    std::shuffle(pairs.local.begin(), pairs.local.end(), random);
    std::shuffle(pairs.remote.begin(), pairs.remote.end(), random);
  }
  return pairs;
}

BlockPairs InAllBuffers(const BlockPairs& pairs, uint64_t buffers) {
  const uint64_t blocks = pairs.local.size();
  BlockPairs all;
  all.local.reserve(buffers * blocks);
  all.remote.reserve(buffers * blocks);
  for (uint64_t first = 0; first < buffers * blocks; first += blocks) {
    for (const uint64_t block : pairs.local) all.local.push_back(first + block);
    for (const uint64_t block : pairs.remote) all.remote.push_back(first + block);
  }
  return all;
}

void FillPattern(std::span<std::byte> bytes, uint64_t seed) {
  for (uint64_t i = 0; i < bytes.size() / sizeof(uint64_t); ++i) {
    const uint64_t word = WordAt(i, seed);
    std::memcpy(bytes.data() + i * sizeof(word), &word, sizeof(word));
  }
}

void FillCanary(std::span<std::byte> bytes, std::byte canary) {
  std::fill(bytes.begin(), bytes.end(), canary);
}

bool IsCanary(std::span<const std::byte> bytes, std::byte canary) {
  return std::all_of(bytes.begin(), bytes.end(), [canary](std::byte b) { return b == canary; });
}

std::optional<std::string> FindMismatch(std::span<const std::byte> destination,
                                        const Expected& expected) {
  const uint64_t words = expected.block_bytes / sizeof(uint64_t);
  for (size_t i = 0; i < expected.destination_blocks.size(); ++i) {
    const uint64_t block = expected.destination_blocks[i];
    const std::byte* start = destination.data() + block * expected.block_bytes;
    if (!BlockMatches(start, expected.source_blocks[i] * words, words, expected.seed)) {
      return "block " + std::to_string(block) + " is not a copy of block " +
             std::to_string(expected.source_blocks[i]);
    }
  }
  return std::nullopt;
}

}  // namespace gantry::bench
