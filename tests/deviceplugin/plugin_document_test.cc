// docs/device_plugin.md names every flag of the plugin, docs/metrics.md every metric.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <set>

#include "deviceplugin/plugin_config.h"
#include "deviceplugin/plugin_metrics.h"
#include "tests/fakes/source_folder.h"

namespace gantry::deviceplugin {
namespace {

std::string Document(const std::string& name) {
  std::ifstream file(testing::SourceFolder() / "docs" / name);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

/// What stands in a text between a beginning and the first of an end's characters (std::regex warns
/// under sanitizers).
std::set<std::string> Between(const std::string& text, const std::string& begin,
                              const std::string& end) {
  std::set<std::string> found;
  for (std::size_t at = 0; (at = text.find(begin, at)) != std::string::npos;) {
    at += begin.size();
    const std::size_t length = text.find_first_of(end, at) - at;
    found.insert(text.substr(at, length));
  }
  return found;
}

std::set<std::string> WithPrefix(const std::string& prefix, const std::set<std::string>& rests) {
  std::set<std::string> whole;
  for (const std::string& rest : rests) {
    whole.insert(prefix + rest);
  }
  return whole;
}

TEST(PluginDocument, NamesEveryMetricAndNoOther) {
  const auto real = Between(PluginMetrics::Make()->Text(), "# TYPE gantry_dp_", " ");
  ASSERT_GT(real.size(), 10U);
  EXPECT_EQ(Between(Document("metrics.md"), "| `gantry_dp_", "`"), real);
}

TEST(PluginDocument, NamesEveryFlagAndNoOther) {
  ::testing::internal::CaptureStdout();
  const char* const arguments[] = {"gantry-device-plugin", "--help"};
  EXPECT_EQ(ParsePluginConfig(2, arguments).exit_code, 0);
  const std::string help = ::testing::internal::GetCapturedStdout();
  auto real = WithPrefix("--", Between(help, "  --", " =[\n"));
  real.merge(WithPrefix("--", Between(help, ",--", " =[\n")));
  for (const char* const everywhere : {"--help", "--version", "--print-config", "--log-level"}) {
    EXPECT_EQ(real.erase(everywhere), 1U) << everywhere;
  }
  const std::string document = Document("device_plugin.md");
  const std::string settings =
      document.substr(document.find("## Settings"),
                      document.find("## What a container") - document.find("## Settings"));
  auto documented = WithPrefix("--", Between(settings, "`--", "`"));
  EXPECT_EQ(documented, real);
}

TEST(PluginConfigTest, ImpossibleSettingsAreUsageErrors) {
  for (const char* const setting :
       {"--resource=nodomain/x", "--resource=gantry.dev", "--resource=Gantry.dev/x",
        "--resource=a.b/c/d", "--resource=1.dev/x", "--resource=gantry.dev/-x",
        "--resource=gantry.dev/x-", "--instance=a/b", "--kubelet-dir=plugins",
        "--pod-resources-dir=", "--cdi-dir=cdi", "--peer-dir=../peers", "--slots=0",
        "--binding=late", "--missing-gpu=maybe", "--unknown"}) {
    const char* const arguments[] = {"gantry-device-plugin", setting};
    EXPECT_EQ(ParsePluginConfig(2, arguments).exit_code, 2) << setting;
  }
  const char* const longest[] = {"gantry-device-plugin", "--resource=a-1.b/c-1.d",
                                 "--instance=a-B.1_", "--print-config"};
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(ParsePluginConfig(4, longest).exit_code, 0);
  EXPECT_NE(::testing::internal::GetCapturedStdout(), "");
  const char* const both[] = {"gantry-device-plugin", "--no-rdma", "--require-rdma"};
  EXPECT_EQ(ParsePluginConfig(3, both).exit_code, 2);
}

}  // namespace
}  // namespace gantry::deviceplugin
