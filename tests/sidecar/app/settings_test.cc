#include "sidecar/app/settings.h"

#include <gtest/gtest.h>

#include <algorithm>
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

TEST(Settings, HaveVariablesNamedAsTheirFlags) {
  EXPECT_EQ(EnvironmentName("--run-dir"), "GANTRY_RUN_DIR");
}

}  // namespace
}  // namespace gantry::settings
