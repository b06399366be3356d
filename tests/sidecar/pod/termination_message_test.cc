#include "sidecar/pod/termination_message.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/fakes/test_folder.h"

namespace gantry::pod {
namespace {

class TerminationMessageTest : public ::testing::Test {
 protected:
  std::string Make(const std::string& name, const std::string& text) const {
    std::ofstream(folder_.File(name)) << text;
    return folder_.File(name);
  }
  static std::string Read(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }

  const testing::TestFolder folder_;
};

TEST_F(TerminationMessageTest, ReplacesWhatWasThere) {
  const std::string path = Make("log", "something that is longer than what comes");
  WriteTerminationMessage(path, "why");
  EXPECT_EQ(Read(path), "why");
}

TEST_F(TerminationMessageTest, AFileThatIsNotThereIsNotMade) {
  WriteTerminationMessage(folder_.File("absent"), "why");
  WriteTerminationMessage("", "why");
  EXPECT_FALSE(std::filesystem::exists(folder_.File("absent")));
}

TEST_F(TerminationMessageTest, NothingButAFileIsWrittenTo) {
  const std::string precious = Make("precious", "x");
  std::filesystem::create_symlink(precious, folder_.File("link"));
  WriteTerminationMessage(folder_.File("link"), "why");
  EXPECT_EQ(Read(precious), "x");
  ASSERT_EQ(::mkfifo(folder_.File("fifo").c_str(), 0600), 0);
  WriteTerminationMessage(folder_.File("fifo"), "why");  // returns, though nobody reads
  WriteTerminationMessage(folder_.path(), "why");
}

TEST_F(TerminationMessageTest, IsCutAtWhatKubernetesShowsAndAtACharacter) {
  const std::string path = Make("log", "");
  WriteTerminationMessage(path, std::string(4096, 'a') + "b");
  EXPECT_EQ(Read(path), std::string(4096, 'a'));
  WriteTerminationMessage(path, std::string(4096, 'a'));
  EXPECT_EQ(Read(path).size(), 4096U);
  // A character of three bytes, the last of which does not fit.
  WriteTerminationMessage(path, std::string(4094, 'a') + "\xe2\x86\x92" + "b");
  EXPECT_EQ(Read(path), std::string(4094, 'a'));
  WriteTerminationMessage(path, std::string(4093, 'a') + "\xe2\x86\x92" + "b");
  EXPECT_EQ(Read(path), std::string(4093, 'a') + "\xe2\x86\x92");
}

}  // namespace
}  // namespace gantry::pod
