#include "sidecar/plan/row_grouping.h"

#include <algorithm>
#include <span>
#include <tuple>
#include <utility>

namespace gantry::engine {
namespace {

using transport::BlockPair;
using transport::BlockRun;
using transport::RowLimits;

bool AreAlike(const BlockPair& a, const BlockPair& b) {
  const auto shape = [](const BlockPair& pair) {
    return std::tie(pair.local_allocation, pair.remote_allocation, pair.unit_bytes,
                    pair.local_stride, pair.remote_stride, pair.local_parts, pair.remote_parts);
  };
  return shape(a) == shape(b);
}

// From one base to the next; 0 when that is no step that rows can have.
uint64_t StepOf(uint64_t base, uint64_t next, uint64_t unit_bytes, const RowLimits& limits) {
  const uint64_t step = next > base ? next - base : 0;
  return step >= unit_bytes && step <= limits.step_max ? step : 0;
}

// How many pairs from the first on lie at the step of the first two.
size_t RowsFrom(const std::vector<BlockPair>& pairs, size_t first, const RowLimits& limits,
                uint64_t* local_step, uint64_t* remote_step) {
  size_t rows = 1;
  for (; first + rows < pairs.size(); ++rows) {
    const BlockPair& last = pairs[first + rows - 1];
    const BlockPair& next = pairs[first + rows];
    const uint64_t local = StepOf(last.local_base, next.local_base, next.unit_bytes, limits);
    const uint64_t remote = StepOf(last.remote_base, next.remote_base, next.unit_bytes, limits);
    if (local == 0 || remote == 0 || !AreAlike(last, next)) break;
    if (rows > 1 && (local != *local_step || remote != *remote_step)) break;
    *local_step = local;
    *remote_step = remote;
  }
  return rows;
}

// Of all pairs: those in rows, as the first one with the number of all, and those that are in none.
struct Groups {
  std::vector<BlockPair> in_rows;
  std::vector<BlockPair> members;  // of these
  std::vector<BlockPair> loose;
};

// In the order of memory: a list of layers may go backwards, or by turns through two caches.
void SortByPlace(std::span<BlockPair> pairs) {
  const auto is_before = [](const BlockPair& a, const BlockPair& b) {
    return std::tie(a.local_allocation, a.remote_allocation, a.local_base) <
           std::tie(b.local_allocation, b.remote_allocation, b.local_base);
  };
  if (std::is_sorted(pairs.begin(), pairs.end(), is_before)) return;
  std::sort(pairs.begin(), pairs.end(), is_before);
}

Groups FindGroups(std::vector<BlockPair> pairs, const RowLimits& limits) {
  Groups groups;
  for (size_t i = 0; i < pairs.size();) {
    BlockPair group = pairs[i];
    const size_t rows = RowsFrom(pairs, i, limits, &group.local_row_step, &group.remote_row_step);
    if (rows < limits.rows_min) {
      // The last of them may be the first of a longer one.
      const size_t none = std::max<size_t>(rows - 1, 1);
      for (size_t k = 0; k < none; ++k) groups.loose.push_back(pairs[i++]);
      continue;
    }
    group.rows = static_cast<uint32_t>(rows);
    groups.in_rows.push_back(group);
    for (size_t k = 0; k < rows; ++k) groups.members.push_back(pairs[i++]);
  }
  return groups;
}

// The longest run that may be a row of every group, of so many bytes.
uint64_t UnitsIn(uint64_t row_bytes_max, const std::vector<BlockPair>& groups) {
  uint64_t units = UINT32_MAX;
  for (const BlockPair& group : groups) {
    const uint64_t width = std::min({row_bytes_max, group.local_row_step, group.remote_row_step});
    const uint64_t fit = width / group.unit_bytes;
    units = std::min(units, group.is_dense() ? fit : std::min<uint64_t>(fit, 1));
  }
  return units;
}

// Whether most of the blocks are in runs that are rows, so that they would wait for the copies of
// the others.
bool MostAreRows(const std::vector<BlockPair>& groups, const std::vector<BlockRun>& runs,
                 const RowLimits& limits) {
  const uint64_t units = UnitsIn(limits.row_bytes_max, groups);
  uint64_t blocks = 0, longer = 0;
  for (const BlockRun& run : runs) {
    blocks += run.count;
    longer += run.count > units ? run.count : 0;
  }
  return 2 * longer < blocks;
}

// In equal parts of at most so many units; but where blocks have gaps between them a long run is
// rows by itself, in each of the pairs.
std::vector<BlockRun> CutRuns(const std::vector<BlockRun>& runs, uint64_t units,
                              const std::vector<BlockPair>& groups, const RowLimits& limits) {
  const bool dense = std::all_of(groups.begin(), groups.end(),
                                 [](const BlockPair& group) { return group.is_dense(); });
  std::vector<BlockRun> cut;
  cut.reserve(runs.size());
  for (const BlockRun& run : runs) {
    const bool stays = !dense && run.count >= limits.rows_min;
    const auto parts = stays ? 1 : static_cast<uint32_t>((run.count + units - 1) / units);
    uint32_t first = 0;
    for (uint32_t part = 1; part <= parts; ++part) {
      const auto end = static_cast<uint32_t>(uint64_t{run.count} * part / parts);
      cut.push_back(
          {run.local_unit + first, run.remote_unit + first, end - first, run.first_item + first});
      first = end;
    }
  }
  return cut;
}

// The groups in equal parts of at most so many bytes, when runs are of at most so many units. False
// when parts would have too few rows.
bool CutGroups(const std::vector<BlockPair>& groups, uint64_t units, const RowLimits& limits,
               std::vector<BlockPair>* cut) {
  for (const BlockPair& group : groups) {
    const uint64_t rows_max = limits.bytes_max / (units * group.unit_bytes);
    if (rows_max < limits.rows_min) return false;
    const uint64_t parts = (group.rows + rows_max - 1) / rows_max;
    if (group.rows / parts < limits.rows_min) return false;
    uint64_t first = 0;
    for (uint64_t part = 0; part < parts; ++part) {
      const uint64_t end = group.rows * (part + 1) / parts;
      BlockPair rows = group;
      rows.local_base += first * group.local_row_step;
      rows.remote_base += first * group.remote_row_step;
      rows.rows = static_cast<uint32_t>(end - first);
      cut->push_back(rows);
      first = end;
    }
  }
  return true;
}

void AddSet(std::vector<BlockPair> pairs, std::vector<BlockRun> runs,
            std::vector<RunsOfPairs>* sets) {
  if (!pairs.empty() && !runs.empty()) sets->push_back({std::move(pairs), std::move(runs)});
}

}  // namespace

std::vector<RunsOfPairs> GroupRows(RunsOfPairs all, size_t slices, const RowLimits& limits) {
  std::vector<RunsOfPairs> sets;
  const size_t buffers = all.pairs.size() / slices;
  for (size_t slice = 0; slice < slices; ++slice) {
    SortByPlace(std::span(all.pairs).subspan(slice * buffers, buffers));
  }
  Groups groups = FindGroups(std::move(all.pairs), limits);
  if (groups.in_rows.empty()) {
    AddSet(std::move(groups.loose), std::move(all.runs), &sets);
    return sets;
  }
  std::vector<BlockRun> left = all.runs;  // in the groups
  bool cuts = limits.few_row_bytes_max > 0 && MostAreRows(groups.in_rows, all.runs, limits);
  const uint64_t row_bytes_max = cuts ? limits.few_row_bytes_max : limits.row_bytes_max;
  // Short runs go in more rows than long ones, each within the same bytes.
  for (uint64_t units = UnitsIn(row_bytes_max, groups.in_rows); units > 0; units /= 2) {
    std::vector<BlockPair> parts;
    if (!CutGroups(groups.in_rows, units, limits, &parts)) continue;
    if (std::exchange(cuts, false)) left = CutRuns(left, units, groups.in_rows, limits);
    const bool whole = parts.size() == groups.in_rows.size();
    const auto is_of_these = [&](const BlockRun& run) {
      return run.count <= units && (whole || run.count > units / 2);
    };
    const auto these = std::stable_partition(
        left.begin(), left.end(), [&](const BlockRun& run) { return !is_of_these(run); });
    AddSet(std::move(parts), {these, left.end()}, &sets);
    left.erase(these, left.end());
    if (whole) break;
  }
  AddSet(std::move(groups.members), std::move(left), &sets);
  AddSet(std::move(groups.loose), std::move(all.runs), &sets);
  return sets;
}

}  // namespace gantry::engine
