// Registration and its life: the traps of kubelets, one by one.
#include "deviceplugin/kubelet_link.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>

#include "lib/base/fd_passing.h"
#include "tests/deviceplugin/plugin_fixture.h"

namespace gantry::deviceplugin {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::SizeIs;

class KubeletLinkTest : public PluginTest {
 protected:
  std::vector<std::string> PluginSockets() const {
    std::vector<std::string> sockets;
    for (const auto& entry : fs::directory_iterator(kubelet_.plugin_folder())) {
      const std::string name = entry.path().filename();
      if (name.starts_with("gantry-")) sockets.push_back(name);
    }
    return sockets;
  }
};

TEST_F(KubeletLinkTest, AllSlotsAreAllocatableAfterRegistration) {
  StartAll();
  EXPECT_EQ(kubelet_.Capacity(kResource), 4);
  EXPECT_EQ(kubelet_.registrations(), 1);
  EXPECT_THAT(PluginSockets(), SizeIs(1));
}

TEST_F(KubeletLinkTest, AKubeletThatIsNotThereAtFirstIsWaitedFor) {
  StartPlugin();
  std::this_thread::sleep_for(milliseconds(100));
  kubelet_.Start();
  AwaitSlots(4);
}

TEST_F(KubeletLinkTest, AFolderThatIsMadeLaterIsFound) {
  fs::remove_all(kubelet_.plugin_folder());
  StartPlugin();
  std::this_thread::sleep_for(milliseconds(50));
  kubelet_.Start();
  AwaitSlots(4);
}

TEST_F(KubeletLinkTest, AFolderThatIsMadeAnewIsWatchedAgain) {
  StartAll();
  kubelet_.Stop();
  fs::remove_all(kubelet_.plugin_folder());
  std::this_thread::sleep_for(milliseconds(50));
  kubelet_.Start();
  AwaitSlots(4);
}

TEST_F(KubeletLinkTest, ARestartedKubeletIsRegisteredWithAgain) {
  StartAll();
  for (int restart = 0; restart < 3; ++restart) {
    kubelet_.Restart();
    AwaitSlots(4);
  }
  EXPECT_EQ(kubelet_.registrations(), 4);
  EXPECT_THAT(PluginSockets(), SizeIs(1)) << "old sockets are left behind";
}

TEST_F(KubeletLinkTest, AStreamThatEndsIsTakenForARestart) {
  StartAll();
  kubelet_.DropStream(kResource);
  ASSERT_TRUE(Eventually([&] { return kubelet_.registrations() == 2; }));
  AwaitSlots(4);
}

TEST_F(KubeletLinkTest, ACrowdAtTheSocketGivesWayToTheKubelet) {
  StartAll();
  const std::string socket = kubelet_.plugin_folder() + "/" + PluginSockets().front();
  std::vector<UniqueFd> crowd;
  for (int i = 0; i < 60; ++i) {
    auto silent = ConnectUnix(socket, SOCK_STREAM);
    ASSERT_TRUE(silent) << silent.error().message;
    crowd.push_back(*std::move(silent));
  }
  const auto open = [&] {
    return std::count_if(crowd.begin(), crowd.end(), [](const UniqueFd& each) {
      char byte = 0;
      return ::recv(each.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) != 0;
    });
  };
  // gRPC says its settings first.
  EXPECT_TRUE(Eventually([&] {
    for (const UniqueFd& each : crowd) {
      std::array<char, 256> said;
      (void)!::recv(each.get(), said.data(), said.size(), MSG_DONTWAIT);
    }
    return open() <= 16;
  })) << open();
  kubelet_.DropStream(kResource);
  ASSERT_TRUE(Eventually([&] { return kubelet_.registrations() == 2; }));
  AwaitSlots(4);
}

TEST_F(KubeletLinkTest, ASocketThatSomebodyRemovedIsMadeAnew) {
  StartAll();
  fs::remove(fs::path(kubelet_.plugin_folder()) / PluginSockets().front());
  ASSERT_TRUE(Eventually([&] { return kubelet_.registrations() == 2; }));
  AwaitSlots(4);
}

TEST_F(KubeletLinkTest, ARefusedRegistrationIsTriedAgain) {
  kubelet_.RefuseRegistrations(true);
  kubelet_.Start();
  StartPlugin();
  std::this_thread::sleep_for(milliseconds(100));
  EXPECT_EQ(kubelet_.registrations(), 0);
  kubelet_.RefuseRegistrations(false);
  AwaitSlots(4);
}

TEST_F(KubeletLinkTest, AKubeletThatStopsFollowingAtOnceIsNotAskedWithoutAPause) {
  StartAll();
  const int before = kubelet_.registrations();
  const TimePoint end = Clock::now() + milliseconds(3'000);
  while (Clock::now() < end) {
    if (kubelet_.Allocatable(kResource) == 4) kubelet_.DropStream(kResource);
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_LE(kubelet_.registrations() - before, 4);
}

TEST_F(KubeletLinkTest, AStreamThatEndedUnseenIsNotWaitedForLong) {
  kubelet_.Start();
  kubelet_.LoseStreams(1);
  const TimePoint start = Clock::now();
  StartPlugin();
  AwaitSlots(4);
  EXPECT_LT(Clock::now() - start, KubeletLinkOptions().follow_max);  // and soon, when not busy
}

TEST_F(KubeletLinkTest, AKubeletThatDoesNotAnswerKeepsNoPluginFromEnding) {
  kubelet_.HangRegistrations(true);
  kubelet_.Start();
  StartPlugin();
  ASSERT_TRUE(Eventually([&] { return kubelet_.hangs(); }));
  const TimePoint start = Clock::now();
  plugin_.reset();
  EXPECT_LT(Clock::now() - start, milliseconds(3'000));
}

TEST_F(KubeletLinkTest, ANameThatFitsIntoNoAddressOfASocketIsSaidAtTheStart) {
  config_.resource = "gantry.dev/" + std::string(100, 'x');
  const auto started = PluginApp::Start(config_);
  ASSERT_FALSE(started);
  EXPECT_THAT(started.error().message, HasSubstr("107"));
  EXPECT_THAT(started.error().hint, HasSubstr("--resource"));
}

TEST_F(KubeletLinkTest, TwoPluginsOfOneNodeHaveSocketsOfTheirOwn) {
  StartAll();
  config_.resource = "other.example/transfer";
  config_.peer_dir = kubelet_.File("other-peers");
  auto other = PluginApp::Start(config_);
  ASSERT_TRUE(other);
  ASSERT_TRUE(Eventually([&] { return kubelet_.Allocatable("other.example/transfer") == 4; }));
  EXPECT_EQ(kubelet_.Allocatable(kResource), 4);
  EXPECT_THAT(PluginSockets(), SizeIs(2));
}

TEST_F(KubeletLinkTest, AnEndedPluginLeavesNoSocketAndNoHealthySlot) {
  StartAll();
  plugin_.reset();
  EXPECT_THAT(PluginSockets(), SizeIs(0));
  ASSERT_TRUE(Eventually([&] { return kubelet_.Allocatable(kResource) == 0; }));
  EXPECT_EQ(kubelet_.Capacity(kResource), 4);
}

TEST_F(KubeletLinkTest, SocketsOfKilledPluginsAreRemovedAndNoOthers) {
  const auto leave = [&](const std::string& name) {
    const auto socket = ListenUnix(kubelet_.plugin_folder() + "/" + name, SOCK_STREAM, 0600, 1);
    ASSERT_TRUE(socket) << socket.error().message;
  };
  kubelet_.Start();
  leave("gantry-transfer-dead-1.sock");
  leave("other-plugin.sock");
  StartPlugin();
  AwaitSlots(4);
  EXPECT_THAT(PluginSockets(), SizeIs(1));
  EXPECT_TRUE(fs::exists(kubelet_.plugin_folder() + "/other-plugin.sock"));
}

// A kubelet would wait for the socket, and hide that it comes late.
TEST_F(KubeletLinkTest, ThePluginServesBeforeItRegisters) {
  StartAll();
  kubelet_.Restart();
  AwaitSlots(4);
  EXPECT_EQ(kubelet_.registrations(), 2);
  EXPECT_EQ(kubelet_.failed_dials(), 0);
}

TEST_F(KubeletLinkTest, APodThatIsThereBeforeThePluginIsRefusedAndTheNextOneIsNot) {
  kubelet_.Start();
  EXPECT_THAT(kubelet_.Admit(InferencePod("a", "early", {})).error().message,
              HasSubstr("cannot allocate unregistered device gantry.dev/transfer"));
  StartPlugin();
  AwaitSlots(4);
  Admit(InferencePod("a", "late", {}));
  EXPECT_EQ(Start("a", "late").Variable("GANTRY_SLOT_POD"), "late");
}

TEST_F(KubeletLinkTest, WithoutThePluginARestartedKubeletHasNoSlots) {
  StartAll();
  plugin_.reset();
  kubelet_.Restart();
  EXPECT_EQ(kubelet_.Capacity(kResource), 0);
  EXPECT_THAT(kubelet_.Admit(InferencePod("a", "p", {})).error().message,
              HasSubstr("no healthy devices present"));
  kubelet_.PassGracePeriod();
  EXPECT_THAT(kubelet_.Admit(InferencePod("a", "p", {})).error().message,
              HasSubstr("cannot allocate unregistered device"));
  StartPlugin();
  AwaitSlots(4);
}

TEST_F(KubeletLinkTest, WithoutThePluginTheSlotsGoAfterTheKubeletsGracePeriod) {
  StartAll();
  plugin_.reset();
  ASSERT_TRUE(Eventually([&] { return kubelet_.Allocatable(kResource) == 0; }));
  EXPECT_EQ(kubelet_.Capacity(kResource), 4);
  kubelet_.PassGracePeriod();
  EXPECT_EQ(kubelet_.Capacity(kResource), 0);
}

// An update that starts the new plugin before the old one ends, whose end is heard late.
class KubeletLinkSurgeTest : public KubeletLinkTest {
 protected:
  void Surge() {
    StartAll();
    old_ = std::move(plugin_);
    StartPlugin();
    ASSERT_TRUE(Eventually([&] { return kubelet_.registrations() == 2; }));
    AwaitSlots(4);
    EXPECT_THAT(PluginSockets(), SizeIs(2));
  }
  void EndOld() {
    kubelet_.DelayGoodbyes(milliseconds(300));
    old_.reset();
    EXPECT_THAT(PluginSockets(), SizeIs(1)) << "the old plugin takes the new one's socket with it";
  }
  void ExpectUse() {
    Admit(InferencePod("a", "p", {}));
    EXPECT_EQ(Start("a", "p").Variable("GANTRY_SLOT_POD"), "p");
  }

  std::unique_ptr<PluginApp> old_;
};

TEST_F(KubeletLinkSurgeTest, TheLateGoodbyeOfTheOldPluginLeavesTheNewOneAlone) {
  Surge();
  EndOld();
  for (const TimePoint end = Clock::now() + milliseconds(600); Clock::now() < end;) {
    ASSERT_EQ(kubelet_.Allocatable(kResource), 4);
  }
  ExpectUse();
}

TEST_F(KubeletLinkSurgeTest, AnOldKubeletThatTakesItForTheNewOnesIsRegisteredWithAgain) {
  kubelet_.ConfuseInstances(true);
  Surge();
  EndOld();
  ASSERT_TRUE(Eventually([&] { return kubelet_.Allocatable(kResource) == 0; }));
  EXPECT_FALSE(kubelet_.Admit(InferencePod("a", "p", {})));
  AwaitSlots(4);
  ExpectUse();
}

TEST_F(KubeletLinkSurgeTest, TwoThatStayDoNotRegisterInTurn) {
  Surge();
  std::this_thread::sleep_for(milliseconds(2'500));
  EXPECT_EQ(kubelet_.registrations(), 2);
  fs::remove(fs::path(kubelet_.plugin_folder()) / PluginSockets().front());
  ASSERT_TRUE(Eventually([&] { return kubelet_.registrations() == 3; }));
  std::this_thread::sleep_for(milliseconds(5'000));
  EXPECT_EQ(kubelet_.registrations(), 3) << "each takes the other's new socket for its end";
}

// More than the kernel keeps, while nobody reads: that the folder is another one is lost with them.
TEST_F(KubeletLinkTest, EventsBeyondTheKernelsQueueAreNoLoss) {
  int events_max = 0;
  std::ifstream("/proc/sys/fs/inotify/max_queued_events") >> events_max;
  ASSERT_GT(events_max, 0);
  StartAll();
  kubelet_.HangRegistrations(true);
  kubelet_.Restart();
  ASSERT_TRUE(Eventually([&] { return kubelet_.hangs(); }));
  const std::string file = kubelet_.plugin_folder() + "/other-plugin";
  for (int i = 0; i < events_max / 2 + 1; ++i) {
    std::ofstream(file).close();
    fs::remove(file);
  }
  fs::remove_all(kubelet_.plugin_folder());
  fs::create_directory(kubelet_.plugin_folder());
  kubelet_.HangRegistrations(false);
  kubelet_.Stop();
  std::this_thread::sleep_for(milliseconds(1'000));
  const TimePoint start = Clock::now();
  kubelet_.Start();
  AwaitSlots(4);
  EXPECT_LT(Clock::now() - start, milliseconds(5'000)) << "it was found by chance";
}

TEST_F(KubeletLinkTest, SlotsAreUnhealthyWhileSpecsCannotBeWritten) {
  config_.cdi_dir = kubelet_.File("no-such-folder");
  kubelet_.Start();
  StartPlugin();
  ASSERT_TRUE(Eventually([&] { return kubelet_.Capacity(kResource) == 4; }));
  EXPECT_EQ(kubelet_.Allocatable(kResource), 0);
  EXPECT_THAT(kubelet_.Admit(InferencePod("a", "p", {})).error().message,
              HasSubstr("no healthy devices present"));
}

}  // namespace
}  // namespace gantry::deviceplugin
