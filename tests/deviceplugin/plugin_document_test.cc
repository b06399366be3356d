// docs/device_plugin.md names every flag of the plugin, docs/metrics.md every metric.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <regex>
#include <set>

#include "deviceplugin/plugin_config.h"
#include "deviceplugin/plugin_metrics.h"

namespace gantry::deviceplugin {
namespace {

std::string Document(const std::string& name) {
  std::ifstream file(std::string(GANTRY_SOURCE_DIR) + "/docs/" + name);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::set<std::string> Matches(const std::string& text, const std::string& pattern) {
  std::set<std::string> found;
  const std::regex expression(pattern);
  for (std::sregex_iterator i(text.begin(), text.end(), expression), end; i != end; ++i) {
    found.insert((*i)[1]);
  }
  return found;
}

TEST(PluginDocument, NamesEveryMetricAndNoOther) {
  const auto real = Matches(PluginMetrics::Make()->Text(), "# TYPE (gantry_dp_[a-z_]+)");
  ASSERT_GT(real.size(), 10U);
  EXPECT_EQ(Matches(Document("metrics.md"), "\\| `(gantry_dp_[a-z_]+)` \\|"), real);
}

TEST(PluginDocument, NamesEveryFlagAndNoOther) {
  ::testing::internal::CaptureStdout();
  const char* const arguments[] = {"gantry-device-plugin", "--help"};
  EXPECT_EQ(ParsePluginConfig(2, arguments).exit_code, 0);
  const std::string help = ::testing::internal::GetCapturedStdout();
  auto real = Matches(help, "\n +(?:-[a-z],)?(--[a-z-]+)");
  for (const char* const everywhere : {"--help", "--version", "--print-config", "--log-level"}) {
    EXPECT_EQ(real.erase(everywhere), 1U) << everywhere;
  }
  const std::string document = Document("device_plugin.md");
  const std::string settings =
      document.substr(document.find("## Settings"),
                      document.find("## What a container") - document.find("## Settings"));
  auto documented = Matches(settings, "`(--[a-z-]+)`");
  EXPECT_EQ(documented, real);
}

TEST(PluginConfigTest, ImpossibleSettingsAreUsageErrors) {
  for (const char* const setting :
       {"--resource=nodomain/x", "--resource=gantry.dev", "--resource=Gantry.dev/x",
        "--resource=a.b/c/d", "--slots=0", "--binding=late", "--missing-gpu=maybe", "--unknown"}) {
    const char* const arguments[] = {"gantry-device-plugin", setting};
    EXPECT_EQ(ParsePluginConfig(2, arguments).exit_code, 2) << setting;
  }
  const char* const both[] = {"gantry-device-plugin", "--no-rdma", "--require-rdma"};
  EXPECT_EQ(ParsePluginConfig(3, both).exit_code, 2);
}

}  // namespace
}  // namespace gantry::deviceplugin
