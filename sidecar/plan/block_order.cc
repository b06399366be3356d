#include "sidecar/plan/block_order.h"

#include <algorithm>
#include <array>
#include <bit>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>

namespace gantry::engine {
namespace {

using Ids = std::span<const uint32_t>;

constexpr uint64_t kWordBits = 64;
// A table with a place for each block takes 4 bytes a block, a set of them one bit: neither takes
// more than 32 bytes for each id, however many blocks there are.
constexpr uint64_t kTableBlocksPerId = 8;
constexpr uint64_t kSetBlocksPerId = 256;
constexpr size_t kFewIds = 64;  // what is set up for more of them costs more than comparing

// Of the digits by which ids are sorted; so few values that their counts stay in the nearest cache.
constexpr int kDigitBitsMax = 11;
constexpr int kDigitBitsOfShortLists = 8;
constexpr size_t kShortList = 4096;

bool RisesAlways(Ids ids) {
  for (size_t i = 1; i < ids.size(); ++i) {
    if (ids[i] <= ids[i - 1]) return false;
  }
  return true;
}

// Puts the id into the set; false when it is there.
bool Insert(uint64_t* set, uint32_t id) {
  uint64_t& word = set[id / kWordBits];
  const uint64_t bit = uint64_t{1} << id % kWordBits;
  const bool is_new = (word & bit) == 0;
  word |= bit;
  return is_new;
}

std::vector<uint64_t> EmptySet(uint64_t blocks) {
  return std::vector<uint64_t>((blocks + kWordBits - 1) / kWordBits);
}

// Every id in its place of a table; then those that are there are read out. Nothing when one
// repeats.
std::optional<BlockOrder> OrderByTable(Ids ids, uint64_t blocks) {
  std::vector<uint64_t> present = EmptySet(blocks);
  const auto position_of = std::make_unique_for_overwrite<uint32_t[]>(blocks);
  bool distinct = true;
  for (size_t i = 0; i < ids.size(); ++i) {
    distinct &= Insert(present.data(), ids[i]);
    position_of[ids[i]] = static_cast<uint32_t>(i);
  }
  if (!distinct) return std::nullopt;
  BlockOrder order = {std::vector<uint32_t>(ids.size()), std::vector<uint32_t>(ids.size()), true};
  uint32_t* id = order.ids.data();
  uint32_t* position = order.positions.data();
  for (size_t word = 0; word < present.size(); ++word) {
    for (uint64_t left = present[word]; left != 0; left &= left - 1) {
      const auto bit = static_cast<uint32_t>(std::countr_zero(left));
      *id = static_cast<uint32_t>(word * kWordBits) + bit;
      *position++ = position_of[*id++];
    }
  }
  return order;
}

// Sorts numbers that are ids in their upper halves by those, from the lowest digit to the highest:
// each pass keeps the order of equals.
void SortByDigits(std::vector<uint64_t>* numbers, uint64_t blocks) {
  const int bits = static_cast<int>(std::bit_width(blocks));
  const int digit_max = numbers->size() < kShortList ? kDigitBitsOfShortLists : kDigitBitsMax;
  const int passes = (bits + digit_max - 1) / digit_max;
  const int digit_bits = (bits + passes - 1) / passes;
  const uint64_t mask = (uint64_t{1} << digit_bits) - 1;
  std::array<uint32_t, size_t{1} << kDigitBitsMax> next;
  std::vector<uint64_t> sorted(numbers->size());
  for (int shift = 32; shift < 32 + bits; shift += digit_bits) {
    std::fill_n(next.begin(), mask + 1, 0u);
    for (const uint64_t number : *numbers) ++next[number >> shift & mask];
    std::exclusive_scan(next.begin(), next.begin() + mask + 1, next.begin(), 0u);
    for (const uint64_t number : *numbers) sorted[next[number >> shift & mask]++] = number;
    numbers->swap(sorted);
  }
}

BlockOrder OrderBySorting(std::vector<uint32_t> ids, uint64_t blocks) {
  std::vector<uint64_t> numbers(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) numbers[i] = uint64_t{ids[i]} << 32 | i;
  if (numbers.size() < kFewIds) {
    std::sort(numbers.begin(), numbers.end());
  } else {
    SortByDigits(&numbers, blocks);
  }
  BlockOrder order = {std::move(ids), std::vector<uint32_t>(numbers.size()), false};
  for (size_t i = 0; i < numbers.size(); ++i) {
    order.ids[i] = static_cast<uint32_t>(numbers[i] >> 32);
    order.positions[i] = static_cast<uint32_t>(numbers[i]);
  }
  order.distinct = RisesAlways(order.ids);
  return order;
}

}  // namespace

std::vector<uint32_t> NarrowIds(std::span<const uint64_t> ids, uint64_t blocks) {
  std::vector<uint32_t> narrow(ids.size());
  uint64_t largest = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    largest = std::max(largest, ids[i]);
    narrow[i] = static_cast<uint32_t>(ids[i]);
  }
  if (largest >= blocks) narrow.clear();
  return narrow;
}

BlockOrder OrderBlocks(std::vector<uint32_t> ids, uint64_t blocks) {
  if (RisesAlways(ids)) return {std::move(ids), {}, true};
  if (blocks / kTableBlocksPerId <= ids.size()) {
    if (auto order = OrderByTable(ids, blocks)) return *std::move(order);
  }
  return OrderBySorting(std::move(ids), blocks);
}

bool AreDistinct(Ids ids, uint64_t blocks) {
  if (RisesAlways(ids)) return true;
  if (blocks / kSetBlocksPerId <= ids.size()) {
    std::vector<uint64_t> present = EmptySet(blocks);
    bool distinct = true;
    for (const uint32_t id : ids) distinct &= Insert(present.data(), id);
    return distinct;
  }
  return OrderBySorting({ids.begin(), ids.end()}, blocks).distinct;
}

}  // namespace gantry::engine
