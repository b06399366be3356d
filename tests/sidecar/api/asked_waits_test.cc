// Each workload has a share of the requests that may wait.
#include "sidecar/api/asked_waits.h"

#include <gtest/gtest.h>

#include <optional>
#include <utility>
#include <vector>

#include "sidecar/api/request_reading.h"

namespace gantry::api {
namespace {

class AskedWaitsTest : public ::testing::Test {
 protected:
  // Begins waits of `workload` until one is refused. Returns how many were begun.
  size_t Fill(const std::string& workload) {
    for (size_t begun = 0;; ++begun) {
      auto wait = waits_.Begin(request_, workload, 1'000);
      if (!wait) {
        EXPECT_EQ(wait.error().code, ErrorCode::kResourceExhausted);
        EXPECT_NE(wait.error().message.find(workload + " waits in "), std::string::npos);
        return begun;
      }
      begun_.push_back(*std::move(wait));
    }
  }

  http::Request request_;
  AskedWaits waits_{8};
  std::vector<AskedWaits::Wait> begun_;
};

TEST_F(AskedWaitsTest, OneAloneHasHalfAndAnotherStillFindsRoom) {
  EXPECT_EQ(Fill("first"), 4u);
  EXPECT_EQ(Fill("second"), 2u);
  EXPECT_EQ(Fill("third"), 1u);
  EXPECT_EQ(Fill("first"), 0u);
}

TEST_F(AskedWaitsTest, WhatEndsIsFreeAgain) {
  EXPECT_EQ(Fill("first"), 4u);
  begun_.clear();
  EXPECT_EQ(Fill("second"), 4u);
}

TEST_F(AskedWaitsTest, WhatDoesNotWaitCountsNothing) {
  EXPECT_EQ(Fill("first"), 4u);
  for (const std::optional<uint64_t> none :
       {std::optional<uint64_t>(), std::optional<uint64_t>(0)}) {
    const TimePoint now = Clock::now();
    const auto wait = waits_.Begin(request_, "first", none);
    ASSERT_TRUE(wait);
    EXPECT_LE(wait->until(), Clock::now());
    EXPECT_GE(wait->until(), now);
  }
}

TEST_F(AskedWaitsTest, TheLastThreadMayNotWait) {
  request_.may_wait = false;
  const auto wait = waits_.Begin(request_, "first", 1'000);
  ASSERT_FALSE(wait);
  EXPECT_EQ(wait.error().code, ErrorCode::kResourceExhausted);
  EXPECT_TRUE(waits_.Begin(request_, "first", 0));
}

TEST_F(AskedWaitsTest, WhatEndsThingsIsDoneWithoutTheWait) {
  EXPECT_GT(WaitIfItMay(request_, 60'000), Clock::now());
  request_.may_wait = false;
  const TimePoint until = WaitIfItMay(request_, 60'000);
  EXPECT_LE(until, Clock::now());
}

}  // namespace
}  // namespace gantry::api
