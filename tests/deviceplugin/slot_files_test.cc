#include "deviceplugin/slot_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "lib/wire/slot_variables.h"
#include "tests/fakes/test_folder.h"

namespace gantry::deviceplugin {
namespace {

namespace fs = std::filesystem;

class SlotFilesTest : public ::testing::Test {
 protected:
  static SlotPlan PlanFor(const std::string& pod) {
    SlotPlan plan;
    plan.cdi_version = "0.5.0";
    plan.edits.AddVariable(wire::kSlotPodVariable, pod);
    return plan;
  }
  size_t FilesInFolder() const {
    size_t count = 0;
    for ([[maybe_unused]] const auto& entry : fs::directory_iterator(folder_.path())) ++count;
    return count;
  }

  testing::TestFolder folder_;
  SlotFiles files_{folder_.path(), "gantry.dev/transfer"};
};

TEST_F(SlotFilesTest, WhatIsWrittenIsListed) {
  const auto written = files_.Write("slot-001", PlanFor("one"), files_.EpochOf("slot-001"));
  ASSERT_TRUE(written) << written.error().message;
  EXPECT_TRUE(*written);
  ASSERT_EQ(files_.List().size(), 1U);
  EXPECT_EQ(files_.List()[0].slot, "slot-001");
  EXPECT_EQ(files_.List()[0].pod, "one");
  EXPECT_TRUE(fs::exists(folder_.File("gantry.dev-transfer-slot-001.json")));
  EXPECT_EQ(FilesInFolder(), 1U);
}

TEST_F(SlotFilesTest, TheSameAgainIsNoChange) {
  ASSERT_TRUE(files_.Write("slot-001", PlanFor("one"), 0));
  const auto again = files_.Write("slot-001", PlanFor("one"), files_.EpochOf("slot-001"));
  ASSERT_TRUE(again);
  EXPECT_FALSE(*again);
  EXPECT_EQ(FilesInFolder(), 1U);
}

TEST_F(SlotFilesTest, WhoDecidedByAnOlderStateChangesNothing) {
  const uint64_t before = files_.EpochOf("slot-001");
  ASSERT_TRUE(files_.Write("slot-001", PlanFor("new"), before));
  const auto late = files_.Write("slot-001", PlanFor("old"), before);
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, ErrorCode::kConflict);
  EXPECT_EQ(files_.Remove("slot-001", before).error().code, ErrorCode::kConflict);
  EXPECT_EQ(files_.List()[0].pod, "new");
  EXPECT_EQ(FilesInFolder(), 1U);
}

TEST_F(SlotFilesTest, AClearedSlotHasNoFileAndNoOlderPlanBringsItBack) {
  ASSERT_TRUE(files_.Write("slot-001", PlanFor("one"), 0));
  const uint64_t before = files_.EpochOf("slot-001");
  ASSERT_TRUE(files_.Clear("slot-001"));
  ASSERT_TRUE(files_.Clear("slot-001"));
  EXPECT_FALSE(files_.Write("slot-001", PlanFor("one"), before));
  EXPECT_EQ(FilesInFolder(), 0U);
}

TEST_F(SlotFilesTest, AFolderThatCannotBeWrittenIsSaidSo) {
  const SlotFiles nowhere(folder_.File("missing"), "gantry.dev/transfer");
  ASSERT_FALSE(nowhere.Probe());
  EXPECT_THAT(nowhere.Probe().error().hint, ::testing::HasSubstr("--cdi-dir"));
  EXPECT_TRUE(files_.Probe());
  EXPECT_EQ(FilesInFolder(), 0U);
}

}  // namespace
}  // namespace gantry::deviceplugin
