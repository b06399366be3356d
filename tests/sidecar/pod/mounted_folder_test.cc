#include "sidecar/pod/mounted_folder.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/fakes/test_folder.h"

namespace gantry::pod {
namespace {

class MountedFolderTest : public ::testing::Test {
 protected:
  void Write(const std::string& text) {
    std::filesystem::create_directories(folder_.File("proc/self"));
    std::ofstream(folder_.File("proc/self/mountinfo")) << text;
  }
  std::optional<std::string> SourceOf(const std::string& folder) const {
    return SourceOfMount(folder, folder_.path());
  }

  const testing::TestFolder folder_;
};

TEST_F(MountedFolderTest, TellsWhatIsMountedThereAndNotAboveOrBelow) {
  Write(
      "22 1 0:21 / / rw - overlay overlay rw\n"
      "23 22 0:22 /gantry/peers/team /run/gantry/peers rw,nosuid shared:1 - tmpfs tmpfs rw\n"
      "24 22 0:23 / /proc rw - proc proc rw\n");
  EXPECT_EQ(SourceOf("/run/gantry/peers"), "/gantry/peers/team");
  EXPECT_EQ(SourceOf("/"), "/");
  for (const char* none : {"/run", "/run/gantry", "/run/gantry/peers/x", "/run/gantry/peer", ""}) {
    EXPECT_FALSE(SourceOf(none)) << none;
  }
}

TEST_F(MountedFolderTest, TheLastOneIsOnTop) {
  Write(
      "23 22 0:22 /one /here rw - tmpfs tmpfs rw\n"
      "24 23 0:23 /two /here rw - tmpfs tmpfs rw\n");
  EXPECT_EQ(SourceOf("/here"), "/two");
}

TEST_F(MountedFolderTest, NamesAreReadAsTheKernelEscapesThem) {
  Write("23 22 0:22 /a\\040b\\134c /x\\011y rw - tmpfs tmpfs rw\nnonsense\n\n1 2\n");
  EXPECT_EQ(SourceOf("/x\ty"), "/a b\\c");
}

TEST_F(MountedFolderTest, WithoutTheFileNothingIsKnown) { EXPECT_FALSE(SourceOf("/")); }

TEST(MountedFolder, OfThisMachineProcIsOne) { EXPECT_EQ(SourceOfMount("/proc"), "/"); }

}  // namespace
}  // namespace gantry::pod
