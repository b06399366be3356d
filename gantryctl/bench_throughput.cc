#include "gantryctl/bench_throughput.h"

#include <algorithm>
#include <deque>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gantryctl/bench_ceiling.h"
#include "gantryctl/bench_stand.h"
#include "gantryctl/bench_tcp_ceiling.h"
#include "gantryctl/json_field.h"
#include "gantryctl/sample_statistics.h"
#include "gantryctl/size_text.h"
#include "gantryctl/text_table.h"

namespace gantry::gantryctl {
namespace {

constexpr uint64_t kBlocksMax = 1 << 19;  // of one transfer; both lists count against one limit
constexpr uint64_t kAloneMs = 300'000;    // a transfer that is waited for at once

const char* NameOf(BenchOptions::Operation operation) {
  return operation == BenchOptions::Operation::kRead ? "read" : "write";
}
const char* NameOf(BenchOptions::Order order) {
  return order == BenchOptions::Order::kRandom ? "random" : "sequential";
}

uint64_t BlocksPerTransfer(const BenchOptions& options) {
  const uint64_t blocks = options.bytes / options.block_bytes;
  return options.batch == 0 ? blocks : std::min(options.batch, blocks);
}

struct Totals {
  Samples seconds;  // of each iteration, by the caller's clock
  Samples admit_us, queue_us, move_us;
  Samples engine_seconds;  // likewise, as the sidecar reports them
  Samples ceiling_seconds;
  Samples per_block_seconds;  // on GPUs: a copy for each block
  uint64_t chunks = 0;        // of one iteration
  uint64_t descriptors_in = 0;
  uint64_t descriptors_out = 0;
  uint32_t workers = 0;
  std::string path;
  bool by_peer = false;
  std::map<std::string, int> gpu_plans;  // and how many transfers had each
};

struct OneMove {
  TransferTimes sum;
  double seconds = 0;  // until the last one was over
};

void Count(const TransferOutcome& outcome, OneMove& move, Totals& totals) {
  move.sum.admit_us += outcome.times.admit_us;
  move.sum.queue_us += outcome.times.queue_us;
  move.sum.move_us += outcome.times.move_us;
  move.sum.total_us += outcome.times.total_us;
  totals.chunks += outcome.chunks;
  totals.descriptors_in += outcome.descriptors_in;
  totals.descriptors_out += outcome.descriptors_out;
  totals.workers = std::max(totals.workers, outcome.workers);
  totals.path = outcome.path;
  totals.by_peer = outcome.by_peer;
}

// Moves all blocks once, in transfers of the batch's size, as many at a time as asked for.
Result<OneMove> MoveAll(const BenchStand& stand, const BenchOptions& options,
                        const BlockPairs& pairs, Totals& totals) {
  const uint64_t step = BlocksPerTransfer(options);
  const std::span<const uint64_t> local(pairs.local), remote(pairs.remote);
  const std::string name = BenchStand::RemoteName();
  OneMove move;
  std::deque<BenchWorkload::StartedTransfer> started;
  std::vector<BenchWorkload::StartedTransfer> ended;
  const TimePoint start = Clock::now();
  for (uint64_t first = 0; first < local.size() || !started.empty(); first += step) {
    if (first < local.size()) {
      const uint64_t count = std::min<uint64_t>(step, local.size() - first);
      const bool alone = options.inflight == 1;  // then one request does both
      ASSIGN_OR_RETURN(BenchWorkload::StartedTransfer next,
                       stand.local->Submit(name, options, local.subspan(first, count),
                                           remote.subspan(first, count), alone ? kAloneMs : 0));
      started.push_back(std::move(next));
      if (started.size() < static_cast<size_t>(options.inflight)) continue;
    }
    ASSIGN_OR_RETURN(const TransferOutcome outcome, BenchWorkload::Await(started.front()));
    ended.push_back(std::move(started.front()));
    started.pop_front();
    Count(outcome, move, totals);
  }
  move.seconds = SecondsBetween(start, Clock::now());
  for (const BenchWorkload::StartedTransfer& transfer : ended) {
    const std::string plan = BenchWorkload::GpuPlanOf(transfer);
    if (!plan.empty()) ++totals.gpu_plans[plan];
  }
  return move;
}

Status MoveOnce(const BenchStand& stand, const BenchOptions& options, const BlockPairs& pairs,
                Totals& totals) {
  totals.chunks = totals.descriptors_in = totals.descriptors_out = 0;
  ASSIGN_OR_RETURN(const OneMove move, MoveAll(stand, options, pairs, totals));
  totals.seconds.Add(move.seconds);
  totals.engine_seconds.Add(move.sum.total_us * 1e-6);
  totals.admit_us.Add(move.sum.admit_us);
  totals.queue_us.Add(move.sum.queue_us);
  totals.move_us.Add(move.sum.move_us);
  return {};
}

// Every byte of the destination, and the arena's bytes around both buffers.
Status Verify(const BenchStand& stand, const BenchOptions& options, const BlockPairs& pairs,
              uint64_t seed) {
  const bool read = options.operation == BenchOptions::Operation::kRead;
  const Expected expected{read ? pairs.local : pairs.remote, read ? pairs.remote : pairs.local,
                          options.block_bytes, seed};
  RETURN_IF_ERROR(stand.local->Download());
  RETURN_IF_ERROR(stand.remote->Download());
  const auto wrong = FindMismatch(stand.destination(options.operation).buffer(), expected);
  if (wrong) return Fail(ErrorCode::kInternal, "the bytes are wrong: " + *wrong);
  for (BenchWorkload* workload : {stand.local.get(), stand.remote.get()}) {
    if (!IsCanary(workload->before()) || !IsCanary(workload->after())) {
      return Fail(ErrorCode::kInternal, "bytes outside of the buffer were written");
    }
  }
  return {};
}

BlockPairs InPlace(uint64_t blocks) {
  return MakePairs(blocks, BenchOptions::Order::kSequential, /*seed=*/0);
}

// One contiguous copy, verified; then a copy for each block.
Result<double> MeasureGpus(const BenchStand& stand, const BenchOptions& options,
                           const BlockPairs& pairs, uint64_t seed, Totals& totals) {
  const bool read = options.operation == BenchOptions::Operation::kRead;
  BenchGpuMemory& to = *stand.destination(options.operation).gpu();
  const BenchGpuMemory& from = *stand.source(options.operation).gpu();
  ASSIGN_OR_RETURN(const double ceiling,
                   to.CopyWhole(from, BenchWorkload::offset(), options.bytes));
  RETURN_IF_ERROR(Verify(stand, options, InPlace(pairs.local.size()), seed));
  ASSIGN_OR_RETURN(
      const double per_block,
      to.CopyBlocks(from, read ? pairs.local : pairs.remote, read ? pairs.remote : pairs.local,
                    BenchWorkload::offset(), options.block_bytes));
  totals.per_block_seconds.Add(per_block);
  RETURN_IF_ERROR(Verify(stand, options, pairs, seed));
  return ceiling;
}

Result<double> MeasureCeiling(const CopyWork& work, const BenchOptions& options) {
  if (options.transport == "tcp") return SendWithStreams(work, options.streams);
  return CopyWithThreads(work, options.workers);
}

// One of the ceiling, one of Gantry, into a destination that was wiped before each.
Status Iterate(const BenchStand& stand, const BenchOptions& options, uint64_t seed,
               Totals& totals) {
  const BlockPairs pairs = MakePairs(options.bytes / options.block_bytes, options.order, seed);
  const std::span<std::byte> destination = stand.destination(options.operation).buffer();
  FillPattern(stand.source(options.operation).buffer(), seed);
  const CopyWork work{&pairs, options.block_bytes, stand.local->buffer().data(),
                      stand.remote->buffer().data(),
                      options.operation == BenchOptions::Operation::kRead};
  FillCanary(destination);
  RETURN_IF_ERROR(stand.source(options.operation).Upload());
  RETURN_IF_ERROR(stand.destination(options.operation).Upload());
  const bool on_gpus = stand.local->gpu() != nullptr;
  ASSIGN_OR_RETURN(const double ceiling, on_gpus ? MeasureGpus(stand, options, pairs, seed, totals)
                                                 : MeasureCeiling(work, options));
  totals.ceiling_seconds.Add(ceiling);
  if (!on_gpus) RETURN_IF_ERROR(Verify(stand, options, pairs, seed));
  FillCanary(destination);
  RETURN_IF_ERROR(stand.destination(options.operation).Upload());
  RETURN_IF_ERROR(MoveOnce(stand, options, pairs, totals));
  return Verify(stand, options, pairs, seed);
}

nlohmann::json Report(const BenchOptions& options, const Totals& totals) {
  const auto gigabytes = static_cast<double>(options.bytes) * 1e-9;
  const double gbps = gigabytes / totals.seconds.Median();
  const double ceiling = gigabytes / totals.ceiling_seconds.Median();
  nlohmann::json report = {{"transport", options.transport},
                           {"operation", NameOf(options.operation)},
                           {"order", NameOf(options.order)},
                           {"block", options.block_bytes},
                           {"bytes", options.bytes},
                           {"batch", BlocksPerTransfer(options)},
                           {"inflight", options.inflight},
                           {"iterations", options.iterations},
                           {"path", totals.path},
                           {"executor", totals.by_peer ? "peer" : "self"},
                           {"workers", totals.workers},
                           {"descriptors", totals.descriptors_in},
                           {"descriptors_merged", totals.descriptors_out},
                           {"chunks", totals.chunks},
                           {"gbps", gbps},
                           {"gbps_best", gigabytes / totals.seconds.Least()},
                           {"engine_gbps", gigabytes / totals.engine_seconds.Median()},
                           {"stages_us",
                            {{"wall", 1e6 * totals.seconds.Median()},
                             {"admit", totals.admit_us.Median()},
                             {"queue", totals.queue_us.Median()},
                             {"move", totals.move_us.Median()},
                             {"engine", 1e6 * totals.engine_seconds.Median()}}},
                           {"ceiling_gbps", ceiling},
                           {"ceiling_gbps_best", gigabytes / totals.ceiling_seconds.Least()},
                           {"ratio", gbps / ceiling},
                           {"ratio_best", totals.ceiling_seconds.Least() / totals.seconds.Least()},
                           {"verified", true}};
  if (options.transport == "ipc") {
    report["gpu_copies"] = totals.gpu_plans;
    report["per_block_gbps"] = gigabytes / totals.per_block_seconds.Median();
  }
  return report;
}

}  // namespace

Status CheckBenchOptions(const BenchOptions& options) {
  const auto refuse = [](const std::string& message, const char* hint) {
    return Fail(ErrorCode::kInvalidArgument, message, hint);
  };
  if (options.block_bytes == 0 || options.block_bytes % 8 != 0) {
    return refuse("--block must be a multiple of 8 bytes", "for example --block 64KiB");
  }
  if (options.bytes == 0 || options.bytes % options.block_bytes != 0) {
    return refuse("--bytes must be a multiple of --block", "for example --bytes 1GiB");
  }
  if (BlocksPerTransfer(options) > kBlocksMax) {
    return refuse("these are more than " + std::to_string(kBlocksMax) + " blocks in one transfer",
                  "use larger blocks, fewer bytes, or --batch");
  }
  return {};
}

Result<nlohmann::json> MeasureThroughput(const BenchOptions& options) {
  ASSIGN_OR_RETURN(const BenchStand stand,
                   BenchStand::Build(options, options.bytes, options.block_bytes));
  Totals warm_up, totals;
  RETURN_IF_ERROR(Iterate(stand, options, 1, warm_up));
  for (int i = 0; i < options.iterations; ++i) {
    RETURN_IF_ERROR(Iterate(stand, options, static_cast<uint64_t>(i) + 2, totals));
  }
  nlohmann::json report = Report(options, totals);
  if (options.transport == "tcp") {
    report["streams"] = options.streams;
    report["checksum"] = options.checksum;
    if (const auto iperf = IperfGigabytes(options.streams)) report["iperf3_gbps"] = *iperf;
  }
  return report;
}

std::string ThroughputText(const nlohmann::json& measured) {
  const auto rate = [&](const char* key) { return FormatFixed(NumberOf(measured, key), 2); };
  std::string text =
      TextOf(measured, "operation") + " of " + FormatSize(CountOf(measured, "bytes")) + " in " +
      TextOf(measured, "order") + " blocks of " + FormatSize(CountOf(measured, "block")) +
      ", path " + TextOf(measured, "path") + ", " + std::to_string(CountOf(measured, "workers")) +
      " workers, " + std::to_string(CountOf(measured, "descriptors")) + " descriptors, " +
      std::to_string(CountOf(measured, "chunks")) + " chunks\n";
  TextTable table({"", ">median GB/s", ">best GB/s"});
  table.Add({"gantry", rate("gbps"), rate("gbps_best")});
  const bool on_gpus = measured.contains("per_block_gbps");
  table.Add({CountOf(measured, "streams") > 0 ? "send and recv"
             : on_gpus                        ? "one contiguous copy"
                                              : "memcpy",
             rate("ceiling_gbps"), rate("ceiling_gbps_best")});
  if (on_gpus) table.Add({"a copy for each block", rate("per_block_gbps"), ""});
  table.Add({"ratio", rate("ratio"), rate("ratio_best")});
  if (measured.contains("iperf3_gbps")) table.Add({"iperf3", rate("iperf3_gbps"), ""});
  text += table.Text();
  return text + "every byte was verified after each of " +
         std::to_string(CountOf(measured, "iterations")) + " iterations\n";
}

}  // namespace gantry::gantryctl
