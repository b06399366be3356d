#include "bench/bench_grid.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>
#include <vector>

#include "bench/bench_ceiling.h"
#include "bench/bench_stand.h"
#include "bench/sample_statistics.h"
#include "gantryctl/size_text.h"
#include "gantryctl/text_table.h"
#include "lib/base/clock.h"

namespace gantry::bench {
namespace {

using gantryctl::FormatFixed;
using gantryctl::FormatSize;
using gantryctl::TextTable;

constexpr uint64_t kBlockBytesMin = 4 << 10;
constexpr uint64_t kBlockBytesMax = 64 << 20;
constexpr int kTransfersMin = 5;
constexpr int kTransfersMax = 1000;
constexpr double kCellSeconds = 0.4;
constexpr uint64_t kGridSeed = 3;

struct Cell {
  uint64_t block_bytes = 0;
  uint64_t batch = 0;
  Samples wall, prep, post, move, ceiling;  // microseconds of one transfer
};

nlohmann::json Row(const Cell& cell) {
  const auto gigabytes = static_cast<double>(cell.block_bytes * cell.batch) * 1e-9;
  return {{"block", cell.block_bytes},
          {"batch", cell.batch},
          {"transfers", cell.wall.size()},
          {"gbps", gigabytes / (cell.wall.Mean() * 1e-6)},
          {"ceiling_gbps", gigabytes / (cell.ceiling.Mean() * 1e-6)},
          {"ratio", cell.ceiling.Mean() / cell.wall.Mean()},
          {"latency_us", cell.wall.Mean()},
          {"latency_p99_us", cell.wall.Percentile(0.99)},
          {"prep_us", cell.prep.Mean()},
          {"prep_p99_us", cell.prep.Percentile(0.99)},
          {"post_us", cell.post.Mean()},
          {"post_p99_us", cell.post.Percentile(0.99)},
          {"tx_us", cell.move.Mean()},
          {"tx_p99_us", cell.move.Percentile(0.99)}};
}

TextTable GridTable() {
  TextTable table({">block", ">batch", ">B/W GB/s", ">memcpy GB/s", ">ratio", ">avg lat us",
                   ">avg prep us", ">P99 prep us", ">avg post us", ">P99 post us", ">avg tx us",
                   ">P99 tx us"});
  table.SetWidthsMin(9);
  return table;
}

std::vector<std::string> RowCells(const nlohmann::json& row) {
  std::vector<std::string> cells = {FormatSize(row["block"].get<uint64_t>()),
                                    std::to_string(row["batch"].get<uint64_t>())};
  for (const char* key : {"gbps", "ceiling_gbps", "ratio"}) {
    cells.push_back(FormatFixed(row[key].get<double>(), 2));
  }
  for (const char* key :
       {"latency_us", "prep_us", "prep_p99_us", "post_us", "post_p99_us", "tx_us", "tx_p99_us"}) {
    cells.push_back(FormatFixed(row[key].get<double>(), 1));
  }
  return cells;
}

// The pairs of the n-th transfer: they walk over the whole buffer, so that no cache helps.
BlockPairs Slice(const BlockPairs& all, uint64_t batch, uint64_t turn) {
  const uint64_t start = turn * batch % (all.local.size() - batch + 1);
  const auto from = static_cast<std::ptrdiff_t>(start);
  const auto to = static_cast<std::ptrdiff_t>(start + batch);
  return {{all.local.begin() + from, all.local.begin() + to},
          {all.remote.begin() + from, all.remote.begin() + to}};
}

Status MoveAndVerify(const BenchStand& stand, const BenchOptions& options, const BlockPairs& pairs,
                     Cell& cell, bool verify) {
  const bool read = options.operation == BenchOptions::Operation::kRead;
  const CopyWork work{&pairs, cell.block_bytes, stand.local->buffer().data(),
                      stand.remote->buffer().data(), read};
  ASSIGN_OR_RETURN(const double seconds, CopyWithThreads(work, options.workers));
  cell.ceiling.Add(1e6 * seconds);
  const std::span<const uint64_t> written = read ? pairs.local : pairs.remote;
  const std::span<std::byte> destination = stand.destination(options.operation).buffer();
  for (const uint64_t block : written) {
    if (verify) FillCanary(destination.subspan(block * cell.block_bytes, cell.block_bytes));
  }
  ASSIGN_OR_RETURN(
      const TransferOutcome outcome,
      stand.local->Transfer(BenchStand::RemoteName(), options, pairs.local, pairs.remote));
  cell.wall.Add(outcome.times.wall_us);
  cell.prep.Add(outcome.times.admit_us);
  cell.post.Add(outcome.times.queue_us);
  cell.move.Add(outcome.times.move_us);
  if (!verify) return {};
  const Expected expected{written, read ? pairs.remote : pairs.local, cell.block_bytes, kGridSeed};
  const auto wrong = FindMismatch(destination, expected);
  if (wrong) return Fail(ErrorCode::kInternal, "the bytes are wrong: " + *wrong);
  return {};
}

Result<Cell> MeasureCell(const BenchStand& stand, const BenchOptions& options,
                         const BlockPairs& all, uint64_t block_bytes, uint64_t batch) {
  Cell warm_up{block_bytes, batch, {}, {}, {}, {}, {}};
  RETURN_IF_ERROR(MoveAndVerify(stand, options, Slice(all, batch, 0), warm_up, true));
  Cell cell{block_bytes, batch, {}, {}, {}, {}, {}};
  const TimePoint start = Clock::now();
  for (int turn = 1; turn <= kTransfersMax; ++turn) {
    const bool time_is_over = SecondsBetween(start, Clock::now()) > kCellSeconds;
    if (time_is_over && turn > kTransfersMin) break;
    const BlockPairs pairs = Slice(all, batch, static_cast<uint64_t>(turn));
    RETURN_IF_ERROR(MoveAndVerify(stand, options, pairs, cell, false));
  }
  return cell;
}

}  // namespace

Result<nlohmann::json> MeasureGrid(const BenchOptions& options,
                                   const std::function<void(const std::string&)>& show) {
  ASSIGN_OR_RETURN(BenchStand stand, BenchStand::Build(options, options.bytes, kBlockBytesMin));
  FillPattern(stand.source(options.operation).buffer(), kGridSeed);
  const TextTable table = GridTable();
  show(table.HeadingText());
  nlohmann::json rows = nlohmann::json::array();
  for (uint64_t block = kBlockBytesMin; block <= kBlockBytesMax; block *= 2) {
    if (options.bytes < block) break;
    RETURN_IF_ERROR(stand.SetBlockSize(block));
    const BlockPairs all = MakePairs(options.bytes / block, options.order, kGridSeed);
    for (const uint64_t batch : options.table_batches) {
      if (batch == 0 || batch > all.local.size()) continue;
      ASSIGN_OR_RETURN(const Cell cell, MeasureCell(stand, options, all, block, batch));
      rows.push_back(Row(cell));
      show(table.RowText(RowCells(rows.back())));
    }
  }
  const bool read = options.operation == BenchOptions::Operation::kRead;
  return nlohmann::json{{"transport", options.transport},
                        {"operation", read ? "read" : "write"},
                        {"bytes", options.bytes},
                        {"workers", options.workers},
                        {"verified", true},
                        {"rows", std::move(rows)}};
}

}  // namespace gantry::bench
