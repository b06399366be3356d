#include "deviceplugin/slot_health.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gantry::deviceplugin {
namespace {

using ::testing::HasSubstr;

class SlotHealthTest : public ::testing::Test {
 protected:
  SlotHealthTest() {
    health_.Need(Unhealthy::kCdiDir, [this]() -> Status {
      if (good_) return {};
      return Fail(ErrorCode::kInternal, "made to fail");
    });
  }
  bool LookTimes(int times) {
    for (int i = 0; i < times; ++i) health_.RunChecks();
    return slots_.healthy();
  }

  SlotList slots_{2};
  const std::unique_ptr<PluginMetrics> metrics_ = PluginMetrics::Make();
  SlotHealth health_{slots_, *metrics_};
  bool good_ = true;
};

TEST_F(SlotHealthTest, TheFirstLookDecides) {
  EXPECT_FALSE(slots_.healthy());
  EXPECT_TRUE(LookTimes(1));
}

TEST_F(SlotHealthTest, ABadStartIsSeenAtOnce) {
  good_ = false;
  EXPECT_FALSE(LookTimes(1));
  EXPECT_THAT(metrics_->Text(), HasSubstr("gantry_dp_unhealthy{reason=\"cdi_dir\"} 1"));
  EXPECT_THAT(metrics_->Text(), HasSubstr("gantry_dp_healthy 0"));
}

TEST_F(SlotHealthTest, AMomentIsNotBelievedInEitherDirection) {
  LookTimes(1);
  good_ = false;
  EXPECT_TRUE(LookTimes(SlotHealth::kLooksToBelieve - 1));
  good_ = true;
  EXPECT_TRUE(LookTimes(1));
  good_ = false;
  EXPECT_TRUE(LookTimes(SlotHealth::kLooksToBelieve - 1));
  EXPECT_FALSE(LookTimes(1));
  good_ = true;
  EXPECT_FALSE(LookTimes(SlotHealth::kLooksToBelieve - 1));
  EXPECT_TRUE(LookTimes(1));
  EXPECT_THAT(metrics_->Text(), HasSubstr("gantry_dp_healthy 1"));
}

}  // namespace
}  // namespace gantry::deviceplugin
