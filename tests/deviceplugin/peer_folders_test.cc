// What is removed from the folders of peers, to which pods write: only what is nobody's, without
// waiting for anybody.
#include "deviceplugin/peer_folders.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <filesystem>
#include <fstream>
#include <future>

#include "lib/base/clock.h"
#include "lib/base/fd_passing.h"
#include "tests/fakes/test_folder.h"

namespace gantry::deviceplugin {
namespace {

namespace fs = std::filesystem;

class PeerFoldersTest : public ::testing::Test {
 protected:
  std::string Make(const std::string& name) {
    std::string folder = folders_.parent() + "/" + name;
    EXPECT_TRUE(folders_.Make(folder));
    return folder;
  }
  // As it has no pods, for as long as nothing is made.
  bool Remove(const std::string& name) { return folders_.Remove(name, folders_.TimesMade()); }

  const testing::TestFolder folder_;
  const PeerFolders folders_{folder_.File("peers")};
};

TEST_F(PeerFoldersTest, ASocketWithAFullQueueIsSomebodysAndIsNotWaitedFor) {
  const std::string path = Make("team") + "/a.sock";
  auto listener = ListenUnix(path, SOCK_STREAM, 0600, 0);
  ASSERT_TRUE(listener);
  std::vector<UniqueFd> waiting;
  while (auto next = ConnectUnix(path, SOCK_STREAM | SOCK_NONBLOCK)) {
    waiting.push_back(*std::move(next));
  }
  auto removed = std::async(std::launch::async, [&] { return Remove("team"); });
  const bool answered =
      removed.wait_for(std::chrono::milliseconds(2'000)) == std::future_status::ready;
  EXPECT_TRUE(answered);
  if (!answered) listener->reset();  // or it would wait for ever
  EXPECT_FALSE(removed.get());
  EXPECT_TRUE(fs::exists(path));
}

TEST_F(PeerFoldersTest, ASocketWhoseNameIsTooLongForTheHostIsLookedAt) {
  const std::string folder = Make(std::string(63, 'n'));
  const std::string name = std::string(70, 'p') + ".sock";
  const UniqueFd opened(::open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  auto listener = ListenUnix("/proc/self/fd/" + std::to_string(opened.get()) + "/" + name,
                             SOCK_STREAM, 0600, 1);
  ASSERT_TRUE(listener) << listener.error().message;
  EXPECT_FALSE(Remove(std::string(63, 'n')));
  EXPECT_TRUE(fs::exists(folder + "/" + name));
  listener->reset();
  EXPECT_TRUE(Remove(std::string(63, 'n')));
  EXPECT_FALSE(fs::exists(folder));
}

TEST_F(PeerFoldersTest, SocketsOfEveryKindAreSomebodysWhileThatLives) {
  const std::string folder = Make("team");
  for (const int type : {SOCK_STREAM, SOCK_SEQPACKET}) {
    auto listener = ListenUnix(folder + "/a.sock", type, 0600, 1);
    ASSERT_TRUE(listener);
    EXPECT_FALSE(Remove("team"));
    EXPECT_TRUE(fs::exists(folder + "/a.sock"));
  }
  EXPECT_TRUE(Remove("team"));
}

// A pod can make as many files as it likes there; the plugin has little memory, and other pods.
TEST_F(PeerFoldersTest, AtMostSoManyFilesOfAFolderAreLookedAtAtOnce) {
  const std::string folder = Make("team");
  constexpr int kFiles = 6'000;
  for (int i = 0; i < kFiles; ++i) std::ofstream(folder + "/" + std::to_string(i) + ".peer.lock");
  const auto left = [&] {
    return std::distance(fs::directory_iterator(folder), fs::directory_iterator());
  };
  folders_.RemoveAbandoned(folder);
  EXPECT_GT(left(), 0);
  EXPECT_LT(left(), kFiles);
  folders_.RemoveAbandoned(folder);
  EXPECT_EQ(left(), 0);
}

}  // namespace
}  // namespace gantry::deviceplugin
