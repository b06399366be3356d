#include "bench/bench_report.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "bench/bench_pattern.h"
#include "gantryctl/json_field.h"
#include "gantryctl/size_text.h"
#include "gantryctl/text_table.h"

namespace gantry::bench {
namespace {

using gantryctl::CountOf;
using gantryctl::FormatFixed;
using gantryctl::FormatSize;
using gantryctl::NumberOf;
using gantryctl::TextOf;
using gantryctl::TextTable;

const char* NameOf(BenchOptions::Operation operation) {
  return operation == BenchOptions::Operation::kRead ? "read" : "write";
}
const char* NameOf(BenchOptions::Order order) {
  return order == BenchOptions::Order::kRandom ? "random" : "sequential";
}
const char* NameOf(BenchOptions::Encoding encoding) {
  return encoding == BenchOptions::Encoding::kCbor ? "cbor" : "json";
}

// What was measured.
nlohmann::json Setting(const BenchOptions& options, const ThroughputTotals& totals) {
  return {{"transport", options.transport},
          {"operation", NameOf(options.operation)},
          {"order", NameOf(options.order)},
          {"block", options.block_bytes},
          {"bytes", options.bytes},
          {"buffers", options.buffers},
          {"blocks_per_buffer", BlocksPerBuffer(options)},
          {"batch", BlocksPerTransfer(options)},
          {"inflight", options.inflight},
          {"rounds", options.rounds},
          {"encoding", NameOf(options.encoding)},
          {"iterations", options.iterations},
          {"path", totals.path},
          {"executor", totals.by_peer ? "peer" : "self"},
          {"workers", totals.workers},
          {"pool", options.workers},
          {"transfers", totals.transfers},
          {"descriptors", totals.descriptors_in},
          {"descriptors_merged", totals.descriptors_out},
          {"chunks", totals.chunks},
          {"verified", true}};
}

}  // namespace

void ReportMemory(const BenchOptions& options, nlohmann::json& report) {
  report["memory"] = !options.on_gpus() ? "host" : options.is_virtual() ? "virtual" : "device";
  if (options.is_virtual()) report["piece"] = options.piece_bytes;
}

nlohmann::json ThroughputReport(const BenchOptions& options, const ThroughputTotals& totals) {
  const double round = static_cast<double>(options.bytes) * 1e-9;
  const double gigabytes = round * options.rounds;
  const double gbps = gigabytes / totals.seconds.Median();
  const double gbps_best = gigabytes / totals.seconds.Least();
  // The sidecar counts whole microseconds: what takes less than one counts as one.
  const double engine_gbps = gigabytes * 1e6 / std::max(totals.engine_us.Median(), 1.0);
  const double moving_gbps = gigabytes * 1e6 / std::max(totals.move_us.Median(), 1.0);
  nlohmann::json report = Setting(options, totals);
  ReportMemory(options, report);
  report.update({{"gbps", gbps},
                 {"gbps_best", gbps_best},
                 {"engine_gbps", engine_gbps},
                 {"moving_gbps", moving_gbps},
                 {"stages_us",
                  {{"wall", 1e6 * totals.seconds.Median()},
                   {"admit", totals.admit_us.Median()},
                   {"queue", totals.queue_us.Median()},
                   {"move", totals.move_us.Median()},
                   {"engine", totals.engine_us.Median()}}},
                 {"rest_over_engine", totals.rest_over_engine.Median()}});
  if (!totals.request_over_engine.empty()) {
    report["request_over_engine_p50"] = totals.request_over_engine.Median();
  }
  if (totals.ceiling_seconds.empty()) {
    report["no_ceiling"] = totals.why_no_ceiling;
  } else {
    const double ceiling = round / totals.ceiling_seconds.Median();
    const double ceiling_best = round / totals.ceiling_seconds.Least();
    report.update({{"ceiling_gbps", ceiling},
                   {"ceiling_gbps_best", ceiling_best},
                   {"ratio", gbps / ceiling},
                   {"ratio_best", gbps_best / ceiling_best},
                   {"engine_ratio", engine_gbps / ceiling},
                   {"moving_ratio", moving_gbps / ceiling}});
  }
  if (options.transport == "ipc") {
    report["gpu_copies"] = totals.gpu_plans;
    report["per_block_gbps"] = round / totals.per_block_seconds.Median();
  }
  return report;
}

std::string ThroughputText(const nlohmann::json& measured) {
  const auto rate = [&](const char* key) {
    return measured.contains(key) ? FormatFixed(NumberOf(measured, key), 2) : "-";
  };
  const uint64_t buffers = CountOf(measured, "buffers", 1);
  std::string text =
      TextOf(measured, "operation") + " of " + FormatSize(CountOf(measured, "bytes")) +
      (buffers > 1 ? " in " + std::to_string(buffers) + " buffers" : "") + " in " +
      TextOf(measured, "order") + " blocks of " + FormatSize(CountOf(measured, "block")) +
      (measured.contains("piece") ? " over pieces of " + FormatSize(CountOf(measured, "piece"))
                                  : "") +
      ", path " + TextOf(measured, "path") + ", " + std::to_string(CountOf(measured, "workers")) +
      " workers, " + std::to_string(CountOf(measured, "descriptors")) + " descriptors, " +
      std::to_string(CountOf(measured, "chunks")) + " chunks\n";
  TextTable table({"", ">median GB/s", ">best GB/s", ">of the ceiling"});
  table.Add({"gantry", rate("gbps"), rate("gbps_best"), rate("ratio")});
  table.Add({"  in the sidecar", rate("engine_gbps"), "", rate("engine_ratio")});
  table.Add({"    while moving", rate("moving_gbps"), "", rate("moving_ratio")});
  const bool on_gpus = measured.contains("per_block_gbps");
  table.Add({TextOf(measured, "transport") == "rdma" ? "perftest"
             : CountOf(measured, "streams") > 0      ? "send and recv"
             : on_gpus                               ? "one contiguous copy"
                                                     : "memcpy",
             rate("ceiling_gbps"), rate("ceiling_gbps_best"), ""});
  if (on_gpus) table.Add({"a copy for each block", rate("per_block_gbps"), "", ""});
  if (measured.contains("iperf3_gbps")) table.Add({"iperf3", rate("iperf3_gbps"), "", ""});
  text += table.Text();
  if (measured.contains("no_ceiling")) {
    text += "nothing to compare with: " + TextOf(measured, "no_ceiling") + "\n";
  }
  return text + "a request took " + rate("rest_over_engine") + " of the sidecar's own time" +
         (measured.contains("request_over_engine_p50")
              ? ", the median one " + rate("request_over_engine_p50")
              : "") +
         "; every byte was verified after each of " +
         std::to_string(CountOf(measured, "iterations")) + " iterations\n";
}

}  // namespace gantry::bench
