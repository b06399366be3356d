// A pool whose workers measure the costs of copies, on GPUs of the fake driver with other speeds.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "tests/sidecar/worker/gpu_pool_fixture.h"

namespace gantry::worker {
namespace {

// Far from the fallback's in each of them.
constexpr char kSpeeds[] = "kernel=100,block=2500,row=500,row_byte=0.03";
const GpuCopyCosts kAtThese = {
    .block_ns = 4'250,  // where all workers hand blocks over
    .kernel_mb_s = 100'000,
    .row_ps = 250'000,  // of a pair
    .row_byte_fs = 30'000,
};

constexpr char kWhySkipped[] = "no worker had the time to measure: the machine is too busy";

class GpuCostsPoolTest : public GpuPoolTest {
 protected:
  void TearDown() override {
    Speeds("");
    GpuPoolTest::TearDown();
  }
  // Sets the speeds of GPUs for workers that are started from here on.
  static void Speeds(const std::string& speeds) {
    ::setenv("GANTRY_FAKE_GPU_SPEEDS", speeds.c_str(), 1);
  }
  void StartMeasuring(GpuCosts costs = {}) {
    WorkerPoolOptions options;
    options.workers = 4;
    options.measures_costs = true;
    options.costs = costs;
    Start(options);
  }
  // Whether it comes true of a pool that measures. A busy machine may keep its workers from it:
  // then of another pool. Few of them measured: the machine is too busy for it.
  enum class Outcome { kTrue, kFalse, kTooBusy };
  Outcome ComesTrue(const std::function<bool()>& holds, GpuCosts costs = {}) {
    int measured = 0;
    for (int i = 0; i < 15; ++i) {
      StartMeasuring(costs);
      if (Eventually(holds, milliseconds(1'000))) return Outcome::kTrue;
      measured += Measured(0) > 0 && Measured(1) > 0;
    }
    return measured > 7 ? Outcome::kFalse : Outcome::kTooBusy;
  }
  // Within what a busy machine adds, and far from the fallback.
  bool IsNear(int gpu, const CostField& field) const {
    const uint64_t cost = pool_->costs_of(gpu).values.*field.value;
    const uint64_t expected = kAtThese.*field.value;
    return Measured(gpu) == 4 && cost > expected / 3 && cost < expected * 3;
  }
  size_t Measured(int gpu) const {
    const GpuCosts costs = pool_->costs_of(gpu);
    return static_cast<size_t>(
        std::count(costs.origins.begin(), costs.origins.end(), CostOrigin::kMeasured));
  }
  void ExpectFallback(int gpu) const {
    EXPECT_EQ(pool_->costs_of(gpu).values, GpuCopyCosts());
    EXPECT_EQ(Measured(gpu), 0U);
  }
  // The workers copy as before, and nothing comes of a measurement any more.
  void ExpectThatItFails() {
    std::this_thread::sleep_for(2 * milliseconds(300));
    for (const int gpu : {0, 1}) ExpectFallback(gpu);
    for (int worker = 0; worker < 4; ++worker) {
      EXPECT_TRUE(IsUsable(worker)) << worker;
      EXPECT_FALSE(Worker(worker).gpu.empty()) << worker;
      EXPECT_EQ(Worker(worker).restarts, 0U) << worker;
    }
  }
};

TEST_F(GpuCostsPoolTest, EachGpusCostsAreMeasured) {
  Speeds(kSpeeds);
  std::array<bool, 2 * std::size(kCostFields)> near = {};  // in some pool
  const Outcome outcome = ComesTrue([&] {
    for (size_t i = 0; i < near.size(); ++i) {
      near[i] |= IsNear(static_cast<int>(i % 2), kCostFields[i / 2]);
    }
    return std::find(near.begin(), near.end(), false) == near.end();
  });
  if (outcome == Outcome::kTooBusy) GTEST_SKIP() << kWhySkipped;
  EXPECT_EQ(outcome, Outcome::kTrue);
  ExpectFallback(-1);
  ExpectFallback(2);
}

TEST_F(GpuCostsPoolTest, TheyOutliveTheWorkerThatMeasuredThem) {
  Speeds(kSpeeds);
  const Outcome outcome = ComesTrue([&] { return Measured(0) == 4; });
  if (outcome == Outcome::kTooBusy) GTEST_SKIP() << kWhySkipped;
  ASSERT_EQ(outcome, Outcome::kTrue);
  const GpuCopyCosts before = pool_->costs_of(0).values;
  Speeds("");
  Replace(0);
  ASSERT_TRUE(Eventually([&] { return IsUsable(0); }));
  EXPECT_EQ(pool_->costs_of(0).values, before);
}

TEST_F(GpuCostsPoolTest, WhatIsSetStays) {
  Speeds(kSpeeds);
  const std::vector<std::string> set = {"block_ns=123"};
  const Outcome outcome = ComesTrue([&] { return Measured(0) == 3; }, *ParseCosts(set));
  if (outcome == Outcome::kTooBusy) GTEST_SKIP() << kWhySkipped;
  ASSERT_EQ(outcome, Outcome::kTrue);
  EXPECT_EQ(pool_->costs_of(0).values.block_ns, 123U);
  EXPECT_EQ(pool_->costs_of(0).origins[0], CostOrigin::kSet);
}

TEST_F(GpuCostsPoolTest, APoolMeasuresNothingUnlessItIsTold) {
  Speeds(kSpeeds);
  WorkerPoolOptions options;
  options.workers = 4;
  Start(options);
  ExpectThatItFails();
}

TEST_F(GpuCostsPoolTest, AFailingMeasurementLeavesTheFallback) {
  Speeds(kSpeeds);
  for (const char* calls : {"cuMemcpyBatchAsync=2", "cuMemcpy2DAsync=999", "cuLaunchKernel=2",
                            "cuMemCreate=2", "cuMemcpyBatchAsync=-2"}) {
    SCOPED_TRACE(calls);
    DriverFails(calls);
    StartMeasuring();
    ExpectThatItFails();
  }
}

TEST_F(GpuCostsPoolTest, AnImplausibleMeasurementLeavesTheFallback) {
  Speeds("kernel=1,block=2500,row=500,row_byte=0.03");  // no link is as slow
  StartMeasuring();
  ExpectThatItFails();
}

TEST_F(GpuCostsPoolTest, ASlowGpuHoldsNothingUp) {
  Speeds("kernel=0.0001");  // ten seconds for the first MiB
  const TimePoint begin = Clock::now();
  StartMeasuring();
  EXPECT_LT(Clock::now() - begin, milliseconds(5'000));
  ExpectThatItFails();
}

}  // namespace
}  // namespace gantry::worker
