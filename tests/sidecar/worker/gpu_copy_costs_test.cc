// The costs of copies as values: set, measured, and read from the memory of a worker.
#include "sidecar/worker/channel/gpu_copy_costs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "sidecar/worker/channel/shared_costs.h"
#include "sidecar/worker/channel/worker_ring.h"

namespace gantry::worker {
namespace {

constexpr MeasuredCosts kOthers = {700, 120'000, 30'000, 5'000, 0};

TEST(GpuCopyCosts, TheFallbackIsPlausible) {
  const GpuCopyCosts fallback;
  for (const CostField& field : kCostFields) {
    EXPECT_TRUE(IsPlausible(field, fallback.*field.value)) << field.name;
    EXPECT_FALSE(IsPlausible(field, 0)) << field.name;
    EXPECT_FALSE(IsPlausible(field, UINT64_MAX)) << field.name;
  }
}

TEST(GpuCopyCosts, WhatNoGpuCanIsSaidOnceForAll) {
  const Error no_memory(ErrorCode::kPathUnavailable, "no memory of another GPU is made");
  EXPECT_EQ(GpusToNameFor(no_memory, 0, std::vector<std::string>{"a", "b"}), "a, b");
  EXPECT_EQ(GpusToNameFor(no_memory, 1, std::vector<std::string>{"b", "a"}), "");
  const Error busy(ErrorCode::kDeadlineExceeded, "the GPU is busy");
  EXPECT_EQ(GpusToNameFor(busy, 0, std::vector<std::string>{"a", "b"}), "a");
  EXPECT_EQ(GpusToNameFor(busy, 1, std::vector<std::string>{"b", "a"}), "b");
}

TEST(GpuCopyCosts, ValuesAreSetByName) {
  const std::vector<std::string> set = {"row_ps=20000", "block_ns=700"};
  const auto costs = ParseCosts(set);
  ASSERT_TRUE(costs);
  EXPECT_EQ(costs->values, (GpuCopyCosts{.block_ns = 700, .row_ps = 20'000}));
  EXPECT_THAT(costs->origins,
              ::testing::ElementsAre(CostOrigin::kSet, CostOrigin::kFallback, CostOrigin::kSet,
                                     CostOrigin::kFallback, CostOrigin::kFallback));
}

TEST(GpuCopyCosts, WhatIsNoCostIsRefused) {
  for (const char* text : {"", "=", "=1", "block", "block_ns", "block_ns=", "block_ns=x",
                           "block_ns=1x", "block_ns=-1", "block_ns=0", "block_ns=19",
                           "block_ns=100001", "block_ns=99999999999999999999", "blocks_ns=700"}) {
    const std::vector<std::string> set = {"row_ps=20000", text};
    EXPECT_FALSE(ParseCosts(set)) << text;
  }
}

TEST(GpuCopyCosts, MeasuredValuesReplaceTheFallbackAndNothingThatIsSet) {
  const std::vector<std::string> set = {"kernel_mb_s=50000"};
  GpuCosts costs = *ParseCosts(set);
  EXPECT_TRUE(costs.WantMeasured());
  costs.Take(kOthers);
  EXPECT_EQ(costs.values, (GpuCopyCosts{700, 50'000, 30'000, 5'000, 750}));
  EXPECT_THAT(costs.origins,
              ::testing::ElementsAre(CostOrigin::kMeasured, CostOrigin::kSet, CostOrigin::kMeasured,
                                     CostOrigin::kMeasured, CostOrigin::kFallback));
}

// A worker's memory may hold anything.
TEST(GpuCopyCosts, ImplausibleValuesAreNotTaken) {
  GpuCosts costs;
  costs.Take({0, 1, UINT64_MAX, 19, 5'000});
  EXPECT_EQ(costs.values, GpuCopyCosts());
  EXPECT_EQ(costs.origins, GpuCosts().origins);
}

TEST(GpuCopyCosts, AMeasurementWithOneImplausibleValueIsDropped) {
  EXPECT_TRUE(CheckMeasured(kOthers));
  EXPECT_TRUE(CheckMeasured({700, 0, 0, 0, 0})) << "the driver cannot do the others";
  for (size_t i = 0; i + 1 < kOthers.size(); ++i) {
    for (const uint64_t value : {uint64_t{1}, UINT64_MAX}) {
      MeasuredCosts measured = kOthers;
      measured[i] = value;
      const Status status = CheckMeasured(measured);
      ASSERT_FALSE(status);
      EXPECT_THAT(status.error().message, ::testing::HasSubstr(kCostFields[i].name));
    }
  }
}

TEST(GpuCopyCosts, NothingIsMeasuredWhereAllIsSet) {
  std::vector<std::string> set;
  for (const CostField& field : kCostFields) {
    if (field.measured) {
      set.push_back(std::string(field.name) + "=" + std::to_string(field.most));
    }
  }
  EXPECT_FALSE(ParseCosts(set)->WantMeasured());
}

TEST(SharedCosts, AreMeasuredOnceAndWhereTheyAreWanted) {
  const auto ring = std::make_unique<RingLayout>();
  InitializeRing(ring.get());
  EXPECT_FALSE(BeginCosts(ring.get()));
  WantCosts(ring.get());
  EXPECT_TRUE(BeginCosts(ring.get()));
  EXPECT_FALSE(BeginCosts(ring.get()));
  InitializeRing(ring.get());  // for a successor
  EXPECT_FALSE(BeginCosts(ring.get())) << "it may be what ended the worker";
}

TEST(SharedCosts, AreReadOnceTheyArePublishedAndOutliveTheWorker) {
  const auto ring = std::make_unique<RingLayout>();
  InitializeRing(ring.get());
  WantCosts(ring.get());
  EXPECT_FALSE(ReadCosts(*ring));
  ASSERT_TRUE(BeginCosts(ring.get()));
  EXPECT_FALSE(ReadCosts(*ring));
  PublishCosts(kOthers, ring.get());
  EXPECT_EQ(ReadCosts(*ring), kOthers);
  InitializeRing(ring.get());
  EXPECT_EQ(ReadCosts(*ring), kOthers);
}

}  // namespace
}  // namespace gantry::worker
