#include "sidecar/app/app_options.h"

#include <gtest/gtest.h>

#include "tests/fakes/test_folder.h"

namespace gantry {
namespace {

TEST(AppOptions, TheSpinIsThatOfEveryConnection) {
  const testing::TestFolder folder;
  const auto directory = RunDirectory::Take(folder.File("run"), 0700);
  ASSERT_TRUE(directory) << directory.error().message;
  SidecarConfig config;
  config.spin_us = 25'000;
  const auto options = HttpOptionsOf(config, DivideFds(1 << 20, config), *directory);
  EXPECT_EQ(options.connection.input_spin, milliseconds(25));
}

TEST(FdBudgets, WhatIsGivenAwayLeavesSomeForTheProcess) {
  const SidecarConfig config;
  for (const size_t limit : {size_t{1024}, size_t{4096}, size_t{65536}, size_t{1} << 20}) {
    const FdBudgets budgets = DivideFds(limit, config);
    constexpr size_t kScrapes = 16, kProbes = 2 * 16;
    const size_t doors = 2 * (2 * budgets.peer_connections) + budgets.peer_connections;
    const size_t given = budgets.workloads + 2 * budgets.peers + budgets.rest_connections +
                         budgets.data_connections + 2 * budgets.handoff_connections + doors +
                         kScrapes + kProbes;
    EXPECT_LE(given + 32, limit) << limit;
    EXPECT_LT(WorkloadsMax(config, budgets), budgets.handoff_connections);
  }
  EXPECT_EQ(DivideFds(1 << 20, config).rest_connections, config.connections_max);
  EXPECT_EQ(WorkloadsMax(config, DivideFds(1 << 20, config)), config.workloads_max);
}

TEST(AppOptions, RequestsThatWaitLeaveConnectionsForOthers) {
  const testing::TestFolder folder;
  const auto directory = RunDirectory::Take(folder.File("run"), 0700);
  ASSERT_TRUE(directory) << directory.error().message;
  const SidecarConfig config;
  const auto options = HttpOptionsOf(config, DivideFds(1024, config), *directory);
  EXPECT_EQ(options.connections_max, 80u);
  EXPECT_EQ(options.threads_max, 60u);
}

}  // namespace
}  // namespace gantry
