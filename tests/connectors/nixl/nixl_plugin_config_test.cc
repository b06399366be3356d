#include "connectors/nixl/agent/nixl_plugin_config.h"

#include <gtest/gtest.h>

namespace gantry::nixl {
namespace {

TEST(NixlPluginConfig, TakesWhatNixlShows) {
  const auto config = ReadPluginConfig(DefaultParameters());
  ASSERT_TRUE(config);
  EXPECT_EQ(config->timeout_ms, 2'000);
  EXPECT_EQ(config->deadline_ms, 0);
  EXPECT_TRUE(config->adopts_private);
}

TEST(NixlPluginConfig, TakesEachParameter) {
  const auto config = ReadPluginConfig({{"run_dir", "/run/other"},
                                        {"host", "10.1.2.3"},
                                        {"timeout_ms", "500"},
                                        {"deadline_ms", "60000"},
                                        {"require_path", "ipc,shm"},
                                        {"adopt_private", "no"}});
  ASSERT_TRUE(config);
  EXPECT_EQ(config->run_dir, "/run/other");
  EXPECT_EQ(config->host, "10.1.2.3");
  EXPECT_EQ(config->timeout_ms, 500);
  EXPECT_EQ(config->deadline_ms, 60'000);
  EXPECT_EQ(config->require_path, "ipc,shm");
  EXPECT_FALSE(config->adopts_private);
}

TEST(NixlPluginConfig, RefusesWhatIsNone) {
  EXPECT_EQ(ReadPluginConfig({{"rundir", "/run"}}).error().field, "rundir");
  for (const char* number : {"", "-1", "1.5", "0", "60001", "10 "})
    EXPECT_EQ(ReadPluginConfig({{"timeout_ms", number}}).error().field, "timeout_ms") << number;
  for (const char* word : {"", "1", "true", "Yes", "no "})
    EXPECT_EQ(ReadPluginConfig({{"adopt_private", word}}).error().field, "adopt_private") << word;
}

}  // namespace
}  // namespace gantry::nixl
