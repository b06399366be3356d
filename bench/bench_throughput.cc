#include "bench/bench_throughput.h"

#include <algorithm>
#include <atomic>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bench/bench_ceiling.h"
#include "bench/bench_rdma_ceiling.h"
#include "bench/bench_report.h"
#include "bench/bench_stand.h"
#include "bench/bench_tcp_ceiling.h"
#include "lib/base/thread.h"

namespace gantry::bench {
namespace {

constexpr uint64_t kBlocksMax = 1 << 19;  // of one transfer; both lists count against one limit
constexpr uint64_t kDescriptorsMax = 1 << 20;  // likewise, in all buffers
constexpr uint64_t kPerBlockCopies = 1 << 16;
constexpr uint64_t kPieceStep = 2 << 20;
constexpr uint64_t kWaitMs = 300'000;  // of the request that begins a transfer

struct OneMove {
  TransferTimes sum;
  double seconds = 0;  // until the last one was over
};

void Count(const TransferOutcome& outcome, OneMove& move, ThroughputTotals& totals) {
  move.sum.admit_us += outcome.times.admit_us;
  move.sum.queue_us += outcome.times.queue_us;
  move.sum.move_us += outcome.times.move_us;
  move.sum.total_us += outcome.times.total_us;
  totals.request_over_engine.Add(outcome.times.wall_us / std::max(outcome.times.total_us, 1.0));
  ++totals.transfers;
  totals.chunks += outcome.chunks;
  totals.descriptors_in += outcome.descriptors_in;
  totals.descriptors_out += outcome.descriptors_out;
  totals.workers = std::max(totals.workers, outcome.workers);
  totals.path = outcome.path;
  totals.by_peer = outcome.by_peer;
}

// One of those that have a transfer under way each, as requests of an engine do: each waits for its
// own, and a late one keeps no other waiting.
struct Caller {
  std::vector<BenchWorkload::StartedTransfer> ended;
  std::vector<TransferOutcome> outcomes;
  Status status;
};

// Until all transfers are begun, or one failed, which ends the others' calls, too.
void CallInTurn(const BenchStand& stand, const BenchOptions& options, const BlockPairs& ids,
                std::atomic<uint64_t>* next, Caller* caller) {
  const uint64_t step = BlocksPerTransfer(options);
  const std::span<const uint64_t> local(ids.local), remote(ids.remote);
  const uint64_t transfers = (local.size() + step - 1) / step;
  const uint64_t all = transfers * static_cast<uint64_t>(options.rounds);
  const std::string name = BenchStand::RemoteName();
  const auto move_next = [&](uint64_t number) -> Status {
    const uint64_t first = number % transfers * step;
    const uint64_t count = std::min<uint64_t>(step, local.size() - first);
    const TimePoint submitted = Clock::now();
    ASSIGN_OR_RETURN(BenchWorkload::StartedTransfer transfer,
                     stand.local->Submit(name, options, local.subspan(first, count),
                                         remote.subspan(first, count), kWaitMs));
    ASSIGN_OR_RETURN(TransferOutcome outcome, stand.local->Await(transfer));
    outcome.times.wall_us = 1e6 * SecondsBetween(submitted, Clock::now());
    caller->outcomes.push_back(std::move(outcome));
    caller->ended.push_back(std::move(transfer));
    return {};
  };
  for (uint64_t number = 0; caller->status && (number = next->fetch_add(1)) < all;) {
    caller->status = move_next(number);
  }
  if (!caller->status) next->store(all);
}

// Moves all blocks, so many rounds, in transfers of the batch's size, as many at a time as asked
// for.
Result<OneMove> MoveAll(const BenchStand& stand, const BenchOptions& options, const BlockPairs& ids,
                        ThroughputTotals& totals) {
  std::atomic<uint64_t> next(0);
  std::vector<Caller> callers(static_cast<size_t>(options.inflight));
  std::vector<std::jthread> threads;
  const TimePoint start = Clock::now();
  for (size_t i = 1; i < callers.size(); ++i) {
    auto thread = StartThread("gantry-bench",
                              [&, i] { CallInTurn(stand, options, ids, &next, &callers[i]); });
    if (!thread) {
      next = UINT64_MAX / 2;  // the others stop
      return Fail(std::move(thread).error());
    }
    threads.push_back(*std::move(thread));
  }
  CallInTurn(stand, options, ids, &next, &callers.front());
  threads.clear();  // which waits for them
  OneMove move;
  move.seconds = SecondsBetween(start, Clock::now());
  for (const Caller& caller : callers) {
    RETURN_IF_ERROR(caller.status);
    for (const TransferOutcome& outcome : caller.outcomes) Count(outcome, move, totals);
    for (const BenchWorkload::StartedTransfer& transfer : caller.ended) {
      const std::string plan = BenchWorkload::GpuPlanOf(transfer);
      if (!plan.empty()) ++totals.gpu_plans[plan];
    }
  }
  return move;
}

Status MoveOnce(const BenchStand& stand, const BenchOptions& options, const BlockPairs& ids,
                ThroughputTotals& totals) {
  totals.transfers = totals.chunks = totals.descriptors_in = totals.descriptors_out = 0;
  ASSIGN_OR_RETURN(const OneMove move, MoveAll(stand, options, ids, totals));
  totals.seconds.Add(move.seconds);
  totals.engine_us.Add(move.sum.total_us);
  totals.rest_over_engine.Add(1e6 * move.seconds / std::max(move.sum.total_us, 1.0));
  totals.admit_us.Add(move.sum.admit_us);
  totals.queue_us.Add(move.sum.queue_us);
  totals.move_us.Add(move.sum.move_us);
  return {};
}

// Every byte of the destination, and the arena's bytes around the buffers of both sides: as they
// are in the host's memory, which for buffers on GPUs is their image.
Status VerifyOnHost(const BenchStand& stand, const BenchOptions& options, const BlockPairs& pairs,
                    uint64_t seed) {
  const bool read = options.operation == BenchOptions::Operation::kRead;
  const Expected expected{read ? pairs.local : pairs.remote, read ? pairs.remote : pairs.local,
                          options.block_bytes, seed};
  const auto wrong = FindMismatch(stand.destination(options.operation).buffer(), expected);
  if (wrong) return Fail(ErrorCode::kInternal, "the bytes are wrong: " + *wrong);
  for (BenchWorkload* workload : {stand.local.get(), stand.remote.get()}) {
    if (!workload->IsIntactAround()) {
      return Fail(ErrorCode::kInternal, "bytes outside of the buffers were written");
    }
  }
  return {};
}

Status Verify(const BenchStand& stand, const BenchOptions& options, const BlockPairs& pairs,
              uint64_t seed) {
  RETURN_IF_ERROR(stand.local->Download());
  RETURN_IF_ERROR(stand.remote->Download());
  return VerifyOnHost(stand, options, pairs, seed);
}

BlockPairs InPlace(uint64_t blocks) {
  return MakePairs(blocks, BenchOptions::Order::kSequential, /*seed=*/0);
}

// One contiguous copy, verified; then a copy for each block.
Result<double> MeasureGpus(const BenchStand& stand, const BenchOptions& options,
                           const BlockPairs& pairs, uint64_t seed, ThroughputTotals& totals) {
  const bool read = options.operation == BenchOptions::Operation::kRead;
  BenchGpuMemory& to = *stand.destination(options.operation).gpu();
  const BenchGpuMemory& from = *stand.source(options.operation).gpu();
  ASSIGN_OR_RETURN(const double ceiling,
                   to.CopyWhole(from, BenchWorkload::offset(), options.bytes, options.rounds));
  RETURN_IF_ERROR(Verify(stand, options, InPlace(pairs.local.size()), seed));
  // So many single copies say what one takes; all rounds of many blocks would take minutes.
  const auto per_block_rounds = static_cast<int>(
      std::clamp<uint64_t>(kPerBlockCopies / pairs.local.size(), 1, options.rounds));
  ASSIGN_OR_RETURN(
      const double per_block,
      to.CopyBlocks(from, read ? pairs.local : pairs.remote, read ? pairs.remote : pairs.local,
                    BenchWorkload::offset(), options.block_bytes, per_block_rounds));
  totals.per_block_seconds.Add(per_block);
  RETURN_IF_ERROR(Verify(stand, options, pairs, seed));
  return ceiling;
}

// Without perftest what rdma moves is measured all the same; nullopt, and the reason in the totals.
Result<std::optional<double>> MeasureCeiling(const CopyWork& work, const BenchOptions& options,
                                             ThroughputTotals& totals) {
  if (options.transport == "tcp") {
    ASSIGN_OR_RETURN(const double seconds, SendWithStreams(work, options.streams));
    return seconds;
  }
  if (options.transport == "rdma") {
    const auto moved = MoveWithPerftest(options.operation, options.block_bytes, options.bytes);
    if (moved) return *moved;
    if (moved.error().code != ErrorCode::kNotFound) return Fail(moved.error());
    totals.why_no_ceiling = moved.error().message + ": " + moved.error().hint;
    return std::nullopt;
  }
  ASSIGN_OR_RETURN(const double seconds, CopyWithThreads(work, options.workers));
  return seconds;
}

// One of the ceiling, one of Gantry, into a destination that was wiped before each.
Status Iterate(const BenchStand& stand, const BenchOptions& options, uint64_t seed,
               ThroughputTotals& totals) {
  const BlockPairs ids = MakePairs(BlocksPerBuffer(options), options.order, seed);
  const BlockPairs pairs = InAllBuffers(ids, options.buffers);
  const std::span<std::byte> destination = stand.destination(options.operation).buffer();
  FillPattern(stand.source(options.operation).buffer(), seed);
  const CopyWork work{&pairs, options.block_bytes, stand.local->buffer().data(),
                      stand.remote->buffer().data(),
                      options.operation == BenchOptions::Operation::kRead};
  FillCanary(destination);
  RETURN_IF_ERROR(stand.source(options.operation).Upload());
  RETURN_IF_ERROR(stand.destination(options.operation).Upload());
  const bool by_gpus = options.transport == "ipc";
  std::optional<double> ceiling;
  if (by_gpus) {
    ASSIGN_OR_RETURN(ceiling, MeasureGpus(stand, options, pairs, seed, totals));
  } else {
    ASSIGN_OR_RETURN(ceiling, MeasureCeiling(work, options, totals));
  }
  if (ceiling) totals.ceiling_seconds.Add(*ceiling);
  const bool moved_by_ceiling = !by_gpus && options.transport != "rdma";
  if (moved_by_ceiling) RETURN_IF_ERROR(VerifyOnHost(stand, options, pairs, seed));
  FillCanary(destination);
  RETURN_IF_ERROR(stand.destination(options.operation).Upload());
  RETURN_IF_ERROR(MoveOnce(stand, options, ids, totals));
  return Verify(stand, options, pairs, seed);
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
  if (options.bytes / options.block_bytes % options.buffers != 0) {
    return refuse("--bytes must be a multiple of --block times --buffers",
                  "for example --block 32KiB --buffers 64 --bytes 1GiB");
  }
  if (BlocksPerTransfer(options) > kBlocksMax) {
    return refuse("these are more than " + std::to_string(kBlocksMax) + " blocks in one transfer",
                  "use larger blocks, fewer bytes, or --batch");
  }
  if (BlocksPerTransfer(options) > kDescriptorsMax / options.buffers) {
    return refuse("these are more than " + std::to_string(kDescriptorsMax) +
                      " blocks in one transfer, all buffers together",
                  "use larger blocks, fewer bytes or buffers, or --batch");
  }
  if (options.transport == "shm" && options.on_gpus()) {
    return refuse("shm moves memory of the host only", "use --transport ipc or tcp");
  }
  if (options.transport == "rdma" && options.on_gpus()) {
    return refuse("rdma is measured between memory of hosts", "leave out --memory");
  }
  if (options.transport == "ipc" && !options.on_gpus()) {
    return refuse("ipc is measured between GPUs", "leave --memory out, or name device or virtual");
  }
  if (options.piece_bytes == 0 || options.piece_bytes % kPieceStep != 0) {
    return refuse("--piece must be a multiple of 2 MiB, as the GPUs' drivers make them",
                  "for example --piece 20MiB");
  }
  if (options.table && options.on_gpus()) {
    return refuse("--table measures memory of the host", "leave it out, or leave out --memory");
  }
  const bool throughput = !options.latency && !options.notify && !options.table;
  const bool plain = options.buffers == 1 && options.rounds == 1 &&
                     (options.latency || options.encoding == BenchOptions::Encoding::kCbor);
  if (!throughput && !plain) {
    return refuse(
        "--buffers and --rounds are not for --latency, --notify and --table, nor --encoding for "
        "the "
        "last two",
        "leave them out");
  }
  return {};
}

Result<nlohmann::json> MeasureThroughput(const BenchOptions& options) {
  ASSIGN_OR_RETURN(const BenchStand stand,
                   BenchStand::Build(options, options.bytes, options.block_bytes));
  ThroughputTotals warm_up, totals;
  RETURN_IF_ERROR(Iterate(stand, options, 1, warm_up));
  for (int i = 0; i < options.iterations; ++i) {
    RETURN_IF_ERROR(Iterate(stand, options, static_cast<uint64_t>(i) + 2, totals));
  }
  if (options.transport == "rdma" && totals.path != "rdma") {
    return Fail(ErrorCode::kPathUnavailable, "the bytes went over " + totals.path,
                "GET /v1/peers of a sidecar says why not by rdma: run `gantryctl doctor`");
  }
  nlohmann::json report = ThroughputReport(options, totals);
  if (options.transport == "ipc") {
    ASSIGN_OR_RETURN(report["copy_costs"], stand.sidecars->CopyCosts(0));
  }
  if (options.transport == "tcp") {
    report["streams"] = options.streams;
    report["checksum"] = options.checksum;
    if (const auto iperf = IperfGigabytes(options.streams)) report["iperf3_gbps"] = *iperf;
  }
  return report;
}

}  // namespace gantry::bench
