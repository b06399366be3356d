#include "sidecar/app_options.h"

#include <gtest/gtest.h>

#include "tests/fakes/test_folder.h"

namespace gantry {
namespace {

TEST(AppOptions, WhoIsToSpinForLongRehearses) {
  const testing::TestFolder folder;
  const auto directory = RunDirectory::Take(folder.File("run"), 0700);
  ASSERT_TRUE(directory) << directory.error().message;
  const auto connection = [&](uint64_t spin_us) {
    SidecarConfig config;
    config.spin_us = spin_us;
    return HttpOptionsOf(config, *directory).connection;
  };
  for (const uint64_t spin_us : {uint64_t{0}, uint64_t{999}}) {
    EXPECT_EQ(connection(spin_us).rehearsal_interval.count(), 0) << spin_us;
  }
  EXPECT_EQ(connection(1'000).rehearsal_interval, microseconds(100));
  EXPECT_EQ(connection(25'000).input_spin, milliseconds(25));
}

}  // namespace
}  // namespace gantry
