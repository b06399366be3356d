#include "connectors/nixl/transfer/block_plan.h"

#include <algorithm>
#include <map>
#include <utility>

#include "connectors/nixl/agent/layout_request.h"

namespace gantry::nixl {
namespace {

constexpr size_t kBlocksMin = 32;  // fewer are quick as ranges
constexpr size_t kGroupsMax = 64;
constexpr size_t kPairsMax = 4096;

struct BlockLists {
  std::vector<uint64_t> local;
  std::vector<uint64_t> remote;
};
using PairKey = std::pair<uint32_t, uint32_t>;

bool AreBlocks(const std::vector<gantry_range>& ranges, uint64_t block_bytes) {
  return std::all_of(ranges.begin(), ranges.end(), [&](const gantry_range& range) {
    return range.bytes == block_bytes && range.local_offset % block_bytes == 0 &&
           range.remote_offset % block_bytes == 0;
  });
}

// The lists of each pair of buffers, in the order in which the pairs come first.
std::vector<std::pair<PairKey, BlockLists>> ListsOfPairs(const std::vector<gantry_range>& ranges,
                                                         uint64_t block_bytes) {
  std::vector<std::pair<PairKey, BlockLists>> lists;
  std::map<PairKey, size_t> places;
  size_t place = 0;
  for (const gantry_range& range : ranges) {
    const PairKey pair = {range.local_index, range.remote_index};
    if (lists.empty() || lists[place].first != pair) {
      const auto [found, is_new] = places.emplace(pair, lists.size());
      if (is_new) lists.push_back({pair, {}});
      place = found->second;
    }
    lists[place].second.local.push_back(range.local_offset / block_bytes);
    lists[place].second.remote.push_back(range.remote_offset / block_bytes);
  }
  return lists;
}

std::string KeyOf(const BlockPlan& plan) {
  std::string key = std::to_string(plan.block_bytes);
  for (const BlockGroup& group : plan.groups) {
    key += '/';
    for (size_t i = 0; i < group.local.size(); ++i)
      key.append(group.local[i]->card().buffer).append(">").append(group.remote[i]).append(",");
  }
  return key;
}

}  // namespace

std::optional<BlockPlan> BlocksOf(const TransferRanges& ranges) {
  const uint64_t block_bytes = ranges.ranges.empty() ? 0 : ranges.ranges.front().bytes;
  if (ranges.ranges.size() < kBlocksMin || block_bytes < kBlockBytesMin ||
      !AreBlocks(ranges.ranges, block_bytes))
    return std::nullopt;
  BlockPlan plan;
  plan.block_bytes = block_bytes;
  auto pairs = ListsOfPairs(ranges.ranges, block_bytes);
  if (pairs.size() > kPairsMax) return std::nullopt;
  for (auto& [pair, lists_of_pair] : pairs) {
    BlockLists& lists = lists_of_pair;  // a lambda takes no structured binding
    const auto same = std::find_if(plan.groups.begin(), plan.groups.end(), [&](const auto& group) {
      return group.local_blocks == lists.local && group.remote_blocks == lists.remote;
    });
    BlockGroup& group = same != plan.groups.end() ? *same : plan.groups.emplace_back();
    if (plan.groups.size() > kGroupsMax) return std::nullopt;
    group.local.push_back(ranges.local[pair.first]);
    group.remote.push_back(ranges.remote[pair.second]);
    if (group.local.size() > 1) continue;
    group.local_blocks = std::move(lists.local);
    group.remote_blocks = std::move(lists.remote);
  }
  plan.key = KeyOf(plan);
  return plan;
}

}  // namespace gantry::nixl
