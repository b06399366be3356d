#include "sidecar/app/settings.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

namespace gantry::settings {
namespace {

std::vector<Setting> Flat() {
  std::vector<Setting> all;
  for (const Group& group : AllSettings()) {
    all.insert(all.end(), group.settings.begin(), group.settings.end());
  }
  return all;
}

bool IsNumber(const Setting& setting) {
  return std::visit(
      [](auto field) {
        using Value = std::remove_cvref_t<decltype(SidecarConfig{}.*field)>;
        return std::is_integral_v<Value> && !std::is_same_v<Value, bool>;
      },
      setting.field);
}

bool Holds(const Bounds& bounds, const std::string& value) {
  if (const auto* const range = std::get_if<Range>(&bounds)) {
    return range->minimum <= std::stoll(value) && std::stoll(value) <= range->maximum;
  }
  if (const auto* const words = std::get_if<Words>(&bounds)) {
    return std::find(words->begin(), words->end(), value) != words->end();
  }
  if (const auto* const numbers = std::get_if<Numbers>(&bounds)) {
    return std::find(numbers->begin(), numbers->end(), std::stoul(value)) != numbers->end();
  }
  return true;
}

TEST(Settings, AreOneForEachFlagAndField) {
  const std::vector<Setting> all = Flat();
  ASSERT_GT(all.size(), 60U);
  for (auto one = all.begin(); one != all.end(); ++one) {
    for (auto other = one + 1; other != all.end(); ++other) {
      EXPECT_NE(one->flag, other->flag);
      EXPECT_NE(one->field, other->field) << one->flag << " and " << other->flag;
    }
  }
}

TEST(Settings, OfNumbersHaveBounds) {
  for (const Setting& setting : Flat()) {
    const bool has = std::holds_alternative<Range>(setting.bounds) ||
                     std::holds_alternative<Numbers>(setting.bounds);
    EXPECT_EQ(has, IsNumber(setting)) << setting.flag;
  }
}

TEST(Settings, HaveDefaultsWithinTheirBounds) {
  for (const Setting& setting : Flat()) {
    EXPECT_TRUE(Holds(setting.bounds, DefaultText(setting))) << setting.flag;
  }
}

TEST(Settings, SayTheMeaningOfAnEmptyDefault) {
  for (const Setting& setting : Flat()) {
    if (DefaultText(setting).empty()) {
      EXPECT_NE(setting.default_means, "") << setting.flag;
    }
  }
}

// A process that is given the settings and has to run with them, or to refuse them.
ParsedConfig Parse(const std::vector<std::string>& given) {
  std::vector<const char*> arguments = {"gantry-sidecar"};
  for (const std::string& each : given) arguments.push_back(each.c_str());
  ::testing::internal::CaptureStderr();
  ParsedConfig parsed = ParseSidecarConfig(static_cast<int>(arguments.size()), arguments.data());
  ::testing::internal::GetCapturedStderr();
  return parsed;
}

// The flags and what else they need: a default deadline is not above the longest one.
std::vector<std::string> With(const Setting& setting, const std::string& value) {
  std::vector<std::string> given = {std::string(setting.flag), value};
  if (setting.flag == "--deadline-ms-max") {
    given.insert(given.end(), {"--deadline-ms-default", "1"});
  } else if (setting.flag == "--deadline-ms-default") {
    given.insert(given.end(), {"--deadline-ms-max", std::to_string(kTime.maximum)});
  }
  return given;
}

void ExpectTaken(const Setting& setting, const std::string& value) {
  const ParsedConfig parsed = Parse(With(setting, value));
  EXPECT_EQ(parsed.outcome, ConfigOutcome::kRun) << setting.flag << " " << value;
  EXPECT_EQ(ValueText(setting, parsed.config), value) << setting.flag;
}

void ExpectRefused(const Setting& setting, const std::string& value) {
  const ParsedConfig parsed = Parse(With(setting, value));
  EXPECT_EQ(parsed.exit_code, kExitUsage) << setting.flag << " " << value;
  EXPECT_NE(parsed.usage_error.find(setting.flag), std::string::npos) << parsed.usage_error;
}

TEST(Settings, TakeNumbersWithinTheirBoundsAlone) {
  for (const Setting& setting : Flat()) {
    if (const auto* const range = std::get_if<Range>(&setting.bounds)) {
      ExpectTaken(setting, std::to_string(range->minimum));
      ExpectTaken(setting, std::to_string(range->maximum));
      ExpectRefused(setting, std::to_string(range->minimum - 1));
      ExpectRefused(setting, std::to_string(range->maximum + 1));
      ExpectRefused(setting, "-18446744073709551615");  // 1, where it is read as unsigned
      ExpectRefused(setting, "many");
    }
  }
}

TEST(Settings, TakeTheWordsThatTheyNameAlone) {
  for (const Setting& setting : Flat()) {
    if (const auto* const words = std::get_if<Words>(&setting.bounds)) {
      for (const std::string_view word : *words) ExpectTaken(setting, std::string(word));
      ExpectRefused(setting, "1x");
    } else if (const auto* const numbers = std::get_if<Numbers>(&setting.bounds)) {
      for (const uint32_t number : *numbers) ExpectTaken(setting, std::to_string(number));
      ExpectRefused(setting, "1x");
      ExpectRefused(setting, "1");
    }
  }
}

// A value that the setting takes and that is not its default.
std::string AnotherValue(const Setting& setting) {
  if (setting.flag == "--deadline-ms-default" || setting.flag == "--node-uids") return "7";
  if (setting.flag == "--name") return "another";
  if (setting.flag == "--gpu-copy-costs") return "block_ns=700,row_ps=20000";
  if (const auto* const range = std::get_if<Range>(&setting.bounds)) {
    return std::to_string(range->maximum);
  }
  if (const auto* const words = std::get_if<Words>(&setting.bounds)) {
    return std::string(words->back());
  }
  if (const auto* const numbers = std::get_if<Numbers>(&setting.bounds)) {
    return std::to_string(numbers->back());
  }
  return std::holds_alternative<bool SidecarConfig::*>(setting.field) ? "true" : "127.0.0.1:7";
}

TEST(Settings, AreReadFromTheirVariables) {
  EXPECT_EQ(EnvironmentName("--run-dir"), "GANTRY_RUN_DIR");
  const SidecarConfig before = Parse({}).config;
  const std::vector<Setting> all = Flat();
  for (const Setting& given : all) {
    const std::string variable = EnvironmentName(given.flag);
    ::setenv(variable.c_str(), AnotherValue(given).c_str(), 1);
    const ParsedConfig after = Parse({});
    ::unsetenv(variable.c_str());
    EXPECT_EQ(after.outcome, ConfigOutcome::kRun) << after.usage_error;
    for (const Setting& each : all) {
      EXPECT_EQ(ValueText(each, after.config),
                each.flag == given.flag ? AnotherValue(given) : ValueText(each, before))
          << each.flag << " with " << variable;
    }
  }
}

}  // namespace
}  // namespace gantry::settings
