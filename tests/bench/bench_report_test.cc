#include "bench/bench_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace gantry::bench {
namespace {

// Two rounds of 1 GB in two milliseconds each by the caller's clock; one contiguous copy takes one.
BenchOptions Options() {
  BenchOptions options;
  options.transport = "ipc";
  options.block_bytes = 1'000'000;
  options.bytes = 1'000'000'000;
  options.buffers = 50;
  options.batch = 8;
  options.rounds = 2;
  options.encoding = BenchOptions::Encoding::kJson;
  options.workers = 4;
  return options;
}

ThroughputTotals Totals() {
  ThroughputTotals totals;
  totals.seconds.Add(0.004);
  totals.engine_us.Add(3200);
  totals.move_us.Add(2500);
  totals.rest_over_engine.Add(1.25);
  totals.ceiling_seconds.Add(0.001);
  totals.per_block_seconds.Add(0.02);
  totals.transfers = 6;
  return totals;
}

TEST(BenchReport, RatesCountAllRoundsAndTheCeilingOne) {
  const nlohmann::json report = ThroughputReport(Options(), Totals());
  EXPECT_DOUBLE_EQ(report["gbps"], 500);
  EXPECT_DOUBLE_EQ(report["gbps_best"], 500);
  EXPECT_DOUBLE_EQ(report["engine_gbps"], 625);
  EXPECT_DOUBLE_EQ(report["moving_gbps"], 800);
  EXPECT_DOUBLE_EQ(report["ceiling_gbps"], 1000);
  EXPECT_DOUBLE_EQ(report["per_block_gbps"], 50);
  EXPECT_DOUBLE_EQ(report["ratio"], 0.5);
  EXPECT_DOUBLE_EQ(report["ratio_best"], 0.5);
  EXPECT_DOUBLE_EQ(report["engine_ratio"], 0.625);
  EXPECT_DOUBLE_EQ(report["moving_ratio"], 0.8);
  EXPECT_DOUBLE_EQ(report["rest_over_engine"], 1.25);
  EXPECT_FALSE(report.contains("request_over_engine_p50")) << "no request was timed";
  ThroughputTotals alone = Totals();
  for (const double ratio : {1.04, 1.03, 1.9}) alone.request_over_engine.Add(ratio);
  EXPECT_DOUBLE_EQ(ThroughputReport(Options(), alone)["request_over_engine_p50"], 1.04);
}

TEST(BenchReport, SaysWhatWasMeasured) {
  const nlohmann::json report = ThroughputReport(Options(), Totals());
  EXPECT_EQ(report["buffers"], 50);
  EXPECT_EQ(report["blocks_per_buffer"], 20);
  EXPECT_EQ(report["batch"], 8);
  EXPECT_EQ(report["transfers"], 6);
  EXPECT_EQ(report["rounds"], 2);
  EXPECT_EQ(report["encoding"], "json");
  EXPECT_EQ(report["pool"], 4);
}

TEST(BenchReport, SaysWhichMemory) {
  BenchOptions options = Options();
  EXPECT_EQ(ThroughputReport(options, Totals())["memory"], "device");
  EXPECT_FALSE(ThroughputReport(options, Totals()).contains("piece"));
  options.memory = BenchOptions::Memory::kVirtual;
  options.piece_bytes = 2 << 20;
  const nlohmann::json report = ThroughputReport(options, Totals());
  EXPECT_EQ(report["memory"], "virtual");
  EXPECT_EQ(report["piece"], 2 << 20);
  EXPECT_THAT(ThroughputText(report), ::testing::HasSubstr("over pieces of 2 MiB"));
  options = Options();
  options.transport = "shm";
  EXPECT_EQ(ThroughputReport(options, Totals())["memory"], "host");
}

TEST(BenchReport, WhatTakesLessThanAMicrosecondHasARate) {
  ThroughputTotals totals = Totals();
  totals.engine_us = totals.move_us = Samples();
  totals.engine_us.Add(0);
  totals.move_us.Add(0);
  const nlohmann::json report = ThroughputReport(Options(), totals);
  EXPECT_DOUBLE_EQ(report["engine_gbps"], 2e6);
  EXPECT_DOUBLE_EQ(report["moving_gbps"], 2e6);
}

TEST(BenchReport, WithoutACeilingItSaysWhyAndComparesNothing) {
  ThroughputTotals totals = Totals();
  totals.ceiling_seconds = Samples();
  totals.why_no_ceiling = "ib_read_bw is not installed";
  const nlohmann::json report = ThroughputReport(Options(), totals);
  EXPECT_DOUBLE_EQ(report["gbps"], 500);
  EXPECT_EQ(report["no_ceiling"], "ib_read_bw is not installed");
  for (const char* key : {"ceiling_gbps", "ceiling_gbps_best", "ratio", "ratio_best",
                          "engine_ratio", "moving_ratio"}) {
    EXPECT_FALSE(report.contains(key)) << key;
  }
  const std::string text = ThroughputText(report);
  EXPECT_THAT(text, ::testing::HasSubstr("nothing to compare with: ib_read_bw is not installed\n"));
  EXPECT_THAT(text, ::testing::ContainsRegex("while moving +800.00 +-\n"));
}

TEST(BenchReport, PeopleReadBuffersAndRatios) {
  const std::string text = ThroughputText(ThroughputReport(Options(), Totals()));
  EXPECT_THAT(text, ::testing::HasSubstr("in 50 buffers in random blocks"));
  EXPECT_THAT(text, ::testing::ContainsRegex("while moving +800.00 +0.80\n"));
  EXPECT_THAT(text, ::testing::HasSubstr("1.25 of the sidecar's own time"));
}

}  // namespace
}  // namespace gantry::bench
