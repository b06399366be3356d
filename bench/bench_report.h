// The report of `gantry-bench` on throughput, as JSON and as text. Plain values; used by one
// thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "bench/bench_options.h"
#include "bench/sample_statistics.h"

namespace gantry::bench {

// A sample for each iteration.
struct ThroughputTotals {
  Samples seconds;                      // by the caller's clock, of all rounds
  Samples admit_us, queue_us, move_us;  // summed over the transfers, as the sidecar reports them
  Samples engine_us;                    // likewise
  Samples rest_over_engine;             // the caller's time over the engine's
  Samples request_over_engine;          // the same of each request by itself
  Samples ceiling_seconds;              // of one round
  Samples per_block_seconds;            // on GPUs: a copy for each block, of one round
  // Of one iteration:
  uint64_t transfers = 0;
  uint64_t chunks = 0;
  uint64_t descriptors_in = 0;
  uint64_t descriptors_out = 0;
  // Of all:
  uint32_t workers = 0;
  std::string path;
  bool by_peer = false;
  std::map<std::string, int> gpu_plans;  // and how many transfers had each
  std::string why_no_ceiling;            // where there are no samples of it
};

// Which memory the sides have, into what is reported of any measurement.
void ReportMemory(const BenchOptions& options, nlohmann::json& report);
nlohmann::json ThroughputReport(const BenchOptions& options, const ThroughputTotals& totals);
std::string ThroughputText(const nlohmann::json& measured);

}  // namespace gantry::bench
