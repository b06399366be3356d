#include "bench/bench_latency.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>
#include <vector>

#include "bench/bench_echo.h"
#include "bench/bench_report.h"
#include "bench/bench_stand.h"
#include "bench/sample_statistics.h"
#include "gantryctl/json_field.h"
#include "gantryctl/size_text.h"
#include "gantryctl/text_table.h"
#include "lib/base/clock.h"
#include "lib/http/reply_problem.h"
#include "lib/http/unix_http.h"

namespace gantry::bench {
namespace {

using gantryctl::CountOf;
using gantryctl::FormatFixed;
using gantryctl::MemberOf;
using gantryctl::NumberOf;
using gantryctl::TextOf;
using gantryctl::TextTable;

constexpr uint64_t kBlockBytes = 4096;
constexpr uint64_t kBufferBytes = 64 << 20;
constexpr int kWarmUpCalls = 200;
constexpr int kPacedSecondsMax = 10;
constexpr uint64_t kSeed = 7;
constexpr milliseconds kAnswerMax{30'000};

// A call is quiet when fixed work just before it took no longer than this, relative to its usual
// best (a tenth of all are faster). Between 1 and what a neighbour on the same core costs, 1.4
// to 2.
constexpr double kQuietWithin = 1.15;

// The parts of a call: as the sidecar reports them, and what is left for HTTP and the socket.
struct Stages {
  Samples wall, admit, queue, move, engine, around;
  std::vector<double> reference, calls;  // parallel: ReferenceMicroseconds just before, the call
};

struct Loop {
  http::UnixHttp& http;
  const BenchOptions& options;
  const BlockPairs& pairs;
  size_t next = 0;  // the pair of the next call
};

bool IsCbor(const BenchOptions& options) {
  return options.encoding == BenchOptions::Encoding::kCbor;
}

std::string TransferBody(const BenchOptions& options, uint64_t local, uint64_t remote) {
  const bool read = options.operation == BenchOptions::Operation::kRead;
  const nlohmann::json body = {{"workload", BenchStand::kLocalWorkload},
                               {"op", read ? "read" : "write"},
                               {"local", {BenchWorkload::kBufferName}},
                               {"remote", {BenchStand::RemoteName()}},
                               {"local_blocks", {local}},
                               {"remote_blocks", {remote}}};
  if (!IsCbor(options)) return body.dump();
  std::string bytes;
  nlohmann::json::to_cbor(body, bytes);
  return bytes;
}

// Some microseconds of fixed work, of the kind that a request is made of: says whether the machine
// is as fast as it can be, or shares its cores with somebody.
double ReferenceMicroseconds() {
  const TimePoint start = Clock::now();
  std::map<std::string, int> numbers;
  for (int i = 0; i < 48; ++i) numbers.emplace(std::to_string(i * 7919), i);
  const double elapsed = 1e6 * SecondsBetween(start, Clock::now());
  return numbers.size() == 48 ? elapsed : 0;
}

Status CallOnce(Loop& loop, Stages& stages) {
  const size_t pair = loop.next++ % loop.pairs.local.size();
  const std::string body =
      TransferBody(loop.options, loop.pairs.local[pair], loop.pairs.remote[pair]);
  const std::string_view type = IsCbor(loop.options) ? "application/cbor" : "application/json";
  const http::HttpRequest request = {.method = "POST",
                                     .target = "/v1/transfers?wait_ms=10000",
                                     .body = body,
                                     .body_type = type,
                                     .answer_type = type,
                                     .timeout = kAnswerMax};
  const double reference_us = ReferenceMicroseconds();
  const TimePoint start = Clock::now();
  ASSIGN_OR_RETURN(const std::string answer, http::BodyOrProblem(loop.http.Send(request)));
  const double wall_us = 1e6 * SecondsBetween(start, Clock::now());

  const auto view = IsCbor(loop.options) ? nlohmann::json::from_cbor(answer, true, false)
                                         : nlohmann::json::parse(answer, nullptr, false);
  if (TextOf(view, "state") != "succeeded" || CountOf(view, "bytes_moved") != kBlockBytes) {
    return Fail(ErrorCode::kInternal, "a transfer did not succeed: " + view.dump());
  }
  const nlohmann::json& timings = MemberOf(view, "timings");
  const double engine_us = NumberOf(timings, "total_us");
  stages.reference.push_back(reference_us);
  stages.calls.push_back(wall_us);
  stages.wall.Add(wall_us);
  stages.admit.Add(NumberOf(timings, "admit_us"));
  stages.queue.Add(NumberOf(timings, "queue_us"));
  stages.move.Add(NumberOf(timings, "move_us"));
  stages.engine.Add(engine_us);
  stages.around.Add(std::max(wall_us - engine_us, 0.0));
  return {};
}

template <typename Value>
Status WithoutValue(const Result<Value>& result) {
  return result ? Status() : Fail(result.error());
}

void WaitUntil(TimePoint end, bool busy) {
  if (!busy) return std::this_thread::sleep_until(end);
  while (Clock::now() < end) ReferenceMicroseconds();
}

// Calls once after each pause.
template <typename Call>
Status Repeat(const Loop& loop, int calls, milliseconds gap, const Call& call) {
  for (int i = 0; i < calls; ++i) {
    if (gap.count() > 0) WaitUntil(Clock::now() + gap, loop.options.busy_gaps);
    RETURN_IF_ERROR(call());
  }
  return {};
}

Status CallMany(Loop& loop, int calls, milliseconds gap, Stages& stages) {
  return Repeat(loop, calls, gap, [&] { return CallOnce(loop, stages); });
}

// What each call takes by itself, in the same loop.
template <typename Call>
Result<Samples> MeasureCalls(const Loop& loop, int calls, milliseconds gap, const Call& call) {
  Samples samples;
  const auto once = [&]() -> Status {
    const TimePoint start = Clock::now();
    RETURN_IF_ERROR(call());
    samples.Add(1e6 * SecondsBetween(start, Clock::now()));
    return {};
  };
  RETURN_IF_ERROR(Repeat(loop, calls, gap, once));
  return samples;
}

// A request that does nothing: what HTTP and the socket cost.
Result<Samples> MeasureHttp(Loop& loop, int calls, milliseconds gap) {
  const http::HttpRequest request = {.method = "GET", .target = "/healthz", .timeout = kAnswerMax};
  return MeasureCalls(loop, calls, gap, [&]() -> Status {
    return WithoutValue(http::BodyOrProblem(loop.http.Send(request)));
  });
}

// What no sidecar takes part in; no copies where there are no GPUs.
struct Alone {
  Samples echo, copy;
};

Result<Alone> MeasureAlone(const BenchStand& stand, Loop& loop, int calls, milliseconds gap) {
  const BenchOptions& options = loop.options;
  const size_t bytes = TransferBody(options, 0, 0).size();
  ASSIGN_OR_RETURN(const std::unique_ptr<BenchEcho> echo, BenchEcho::Start());
  Alone alone;
  ASSIGN_OR_RETURN(alone.echo, MeasureCalls(loop, calls, gap, [&] { return echo->Call(bytes); }));
  if (!options.on_gpus()) return alone;
  BenchGpuMemory& to = *stand.destination(options.operation).gpu();
  const BenchGpuMemory& from = *stand.source(options.operation).gpu();
  RETURN_IF_ERROR(to.Reach(from));
  const bool read = options.operation == BenchOptions::Operation::kRead;
  size_t pair = 0;
  const auto copy = [&]() -> Status {  // as the transfers: the bytes are as those leave them
    const uint64_t local = loop.pairs.local[pair], remote = loop.pairs.remote[pair];
    pair = (pair + 1) % loop.pairs.local.size();
    const uint64_t to_block = read ? local : remote, from_block = read ? remote : local;
    return WithoutValue(to.CopyBlocks(from, {&to_block, 1}, {&from_block, 1},
                                      BenchWorkload::offset(), kBlockBytes, /*rounds=*/1));
  };
  ASSIGN_OR_RETURN(alone.copy, MeasureCalls(loop, calls, gap, copy));
  return alone;
}

nlohmann::json Quantiles(const Samples& samples) {
  return {{"p50", samples.Percentile(0.5)},
          {"p90", samples.Percentile(0.9)},
          {"p99", samples.Percentile(0.99)},
          {"p999", samples.Percentile(0.999)}};
}

// The calls that began while the machine was as fast as it can be.
nlohmann::json Quiet(const Stages& stages) {
  Samples reference;
  for (const double us : stages.reference) reference.Add(us);
  const double quiet_below = kQuietWithin * reference.Percentile(0.1);
  Samples quiet;
  for (size_t i = 0; i < stages.calls.size(); ++i) {
    if (stages.reference[i] <= quiet_below) quiet.Add(stages.calls[i]);
  }
  return {{"calls", quiet.size()},
          {"latency_us", Quantiles(quiet)},
          {"reference_us", Quantiles(reference)}};
}

nlohmann::json Report(const Stages& stages, const Samples& http, const Alone& alone, int gap_ms,
                      const BenchOptions& options) {
  nlohmann::json by_itself = {{"echo", Quantiles(alone.echo)}};
  if (!alone.copy.empty()) by_itself["copy"] = Quantiles(alone.copy);
  return {{"gap_ms", gap_ms},
          {"busy_gaps", options.busy_gaps},
          {"calls", stages.wall.size()},
          {"latency_us", Quantiles(stages.wall)},
          {"stages_us",
           {{"http", Quantiles(stages.around)},
            {"admit", Quantiles(stages.admit)},
            {"queue", Quantiles(stages.queue)},
            {"move", Quantiles(stages.move)},
            {"engine", Quantiles(stages.engine)}}},
          {"quiet", Quiet(stages)},
          {"empty_request_us", Quantiles(http)},
          {"alone_us", std::move(by_itself)}};
}

// The blocks that were moved last hold what they should.
Status VerifyAll(const BenchStand& stand, const BenchOptions& options, const Loop& loop) {
  const size_t moved = std::min(loop.next, loop.pairs.local.size());
  const bool read = options.operation == BenchOptions::Operation::kRead;
  const std::span<const uint64_t> local(loop.pairs.local.data(), moved);
  const std::span<const uint64_t> remote(loop.pairs.remote.data(), moved);
  const Expected expected{read ? local : remote, read ? remote : local, kBlockBytes, kSeed};
  RETURN_IF_ERROR(stand.destination(options.operation).Download());
  const auto wrong = FindMismatch(stand.destination(options.operation).buffer(), expected);
  if (wrong) return Fail(ErrorCode::kInternal, "the bytes are wrong: " + *wrong);
  return {};
}

}  // namespace

Result<nlohmann::json> MeasureLatency(const BenchOptions& options) {
  ASSIGN_OR_RETURN(const BenchStand stand, BenchStand::Build(options, kBufferBytes, kBlockBytes));
  FillPattern(stand.source(options.operation).buffer(), kSeed);
  FillCanary(stand.destination(options.operation).buffer());
  RETURN_IF_ERROR(stand.local->Upload());
  RETURN_IF_ERROR(stand.remote->Upload());
  const BlockPairs pairs = MakePairs(kBufferBytes / kBlockBytes, options.order, kSeed);
  http::UnixHttp sidecar(stand.sidecars->ApiSocket(0));
  Loop loop{sidecar, options, pairs};

  Stages warm_up;
  RETURN_IF_ERROR(CallMany(loop, kWarmUpCalls, milliseconds(0), warm_up));
  nlohmann::json loops = nlohmann::json::array();
  for (const int gap_ms : {0, options.gap_ms}) {
    if (gap_ms == 0 && !loops.empty()) break;
    const int calls =
        gap_ms == 0 ? options.calls : std::min(options.calls, kPacedSecondsMax * 1000 / gap_ms);
    Stages stages;
    RETURN_IF_ERROR(CallMany(loop, calls, milliseconds(gap_ms), stages));
    ASSIGN_OR_RETURN(const Samples http,
                     MeasureHttp(loop, std::min(calls, 1000), milliseconds(gap_ms)));
    ASSIGN_OR_RETURN(const Alone alone,
                     MeasureAlone(stand, loop, std::min(calls, 1000), milliseconds(gap_ms)));
    loops.push_back(Report(stages, http, alone, gap_ms, options));
  }
  RETURN_IF_ERROR(VerifyAll(stand, options, loop));
  const bool read = options.operation == BenchOptions::Operation::kRead;
  nlohmann::json report = {{"transport", options.transport},
                           {"operation", read ? "read" : "write"},
                           {"encoding", IsCbor(options) ? "cbor" : "json"},
                           {"block", kBlockBytes},
                           {"workers", options.workers},
                           {"verified", true},
                           {"loops", std::move(loops)}};
  ReportMemory(options, report);
  return report;
}

std::string LatencyText(const nlohmann::json& measured) {
  std::string text;
  for (const nlohmann::json& loop : MemberOf(measured, "loops")) {
    const auto gap = CountOf(loop, "gap_ms");
    text += std::to_string(CountOf(loop, "calls")) + " transfers of 4 KiB, " +
            (gap == 0 ? "back to back"
                      : std::to_string(gap) + " ms between them" +
                            (MemberOf(loop, "busy_gaps") == true ? ", the caller at work" : "")) +
            ", us\n";
    TextTable table({"", ">p50", ">p90", ">p99", ">p99.9"});
    const auto add = [&table](const char* name, const nlohmann::json& quantiles) {
      std::vector<std::string> cells = {name};
      for (const char* key : {"p50", "p90", "p99", "p999"}) {
        cells.push_back(FormatFixed(NumberOf(quantiles, key), 1));
      }
      table.Add(std::move(cells));
    };
    const nlohmann::json& stages = MemberOf(loop, "stages_us");
    add("request to answer", MemberOf(loop, "latency_us"));
    add("  HTTP and socket", MemberOf(stages, "http"));
    add("  in the sidecar", MemberOf(stages, "engine"));
    add("    admit", MemberOf(stages, "admit"));
    add("    queue", MemberOf(stages, "queue"));
    add("    move", MemberOf(stages, "move"));
    const nlohmann::json& quiet = MemberOf(loop, "quiet");
    add("fixed work, before each", MemberOf(quiet, "reference_us"));
    add("request to answer, quiet", MemberOf(quiet, "latency_us"));
    add("an empty request", MemberOf(loop, "empty_request_us"));
    const nlohmann::json& alone = MemberOf(loop, "alone_us");
    add("without a sidecar: an echo", MemberOf(alone, "echo"));
    if (alone.contains("copy")) add("  the copy", MemberOf(alone, "copy"));
    text += table.Text();
  }
  return text + "every byte was verified\n";
}

}  // namespace gantry::bench
