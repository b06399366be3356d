// Peers that are killed or hang, in processes of their own: invariants 5 and 10 across them.
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

#include <array>
#include <future>

#include "tests/sidecar/peer/test_sidecar.h"

namespace gantry::testing {
namespace {

// The helper binary is built next to this one.
class PeerProcess {
 public:
  explicit PeerProcess(std::vector<std::string> arguments) {
    arguments.insert(
        arguments.begin(),
        std::filesystem::read_symlink("/proc/self/exe").parent_path() / "peer_process");
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    std::array<int, 2> pipe = {-1, -1};
    EXPECT_EQ(::pipe2(pipe.data(), O_CLOEXEC), 0);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, pipe[1], STDOUT_FILENO);
    EXPECT_EQ(::posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), environ), 0);
    ::posix_spawn_file_actions_destroy(&actions);
    ::close(pipe[1]);
    std::array<char, 8> said = {};
    const ssize_t got = ::read(pipe[0], said.data(), said.size());
    ready_ = got >= 5 && std::string_view(said.data(), 5) == "ready";
    ::close(pipe[0]);
  }
  PeerProcess(const PeerProcess&) = delete;
  PeerProcess& operator=(const PeerProcess&) = delete;
  ~PeerProcess() { Kill(); }

  bool ready() const { return ready_; }
  void Signal(int number) const { ::kill(pid_, number); }
  void Kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

 private:
  pid_t pid_ = -1;
  bool ready_ = false;
};

class PeerDeathTest : public ::testing::Test {
 protected:
  NodeDir node_;
  CountingMapper mapper_;
};

TEST_F(PeerDeathTest, AKilledPeersMemoryIsUnmappedWithinASecond) {
  PeerProcess owner({"owner", node_.path(), "prefill"});
  ASSERT_TRUE(owner.ready());
  TestSidecar initiator(node_, "decode", mapper_);
  initiator.ConnectTo(node_, "prefill");
  ASSERT_TRUE(initiator.Acquire("prefill", {"k.0"}));
  ASSERT_EQ(mapper_.live(), 1u);
  owner.Kill();
  EXPECT_TRUE(Eventually(1'000, [&] { return mapper_.live() == 0; }));
  EXPECT_TRUE(Eventually(
      1'000, [&] { return initiator.HasEvent(engine::EventType::kPeerDown, "prefill"); }));
  EXPECT_EQ(initiator.StateOf("prefill"), engine::PeerState::kDown);
  PeerProcess again({"owner", node_.path(), "prefill"});
  ASSERT_TRUE(again.ready());
  EXPECT_TRUE(
      Eventually(10'000, [&] { return initiator.StateOf("prefill") == engine::PeerState::kUp; }));
  EXPECT_TRUE(initiator.Acquire("prefill", {"k.0"}));
}

TEST_F(PeerDeathTest, APeerThatHangsIsDownAndItsMemoryUnmapped) {
  PeerProcess owner({"owner", node_.path(), "prefill"});
  ASSERT_TRUE(owner.ready());
  TestSidecar initiator(node_, "decode", mapper_);
  initiator.SetSilenceMax(milliseconds(600));
  initiator.ConnectTo(node_, "prefill");
  ASSERT_TRUE(initiator.Acquire("prefill", {"k.0"}));
  owner.Signal(SIGSTOP);
  EXPECT_TRUE(Eventually(3'000, [&] { return mapper_.live() == 0; }));
  EXPECT_EQ(initiator.StateOf("prefill"), engine::PeerState::kDown);
  owner.Signal(SIGCONT);
  EXPECT_TRUE(
      Eventually(10'000, [&] { return initiator.StateOf("prefill") == engine::PeerState::kUp; }));
}

TEST_F(PeerDeathTest, APeerThatHangsDoesNotHoldTheStopUp) {
  PeerProcess owner({"owner", node_.path(), "prefill"});
  ASSERT_TRUE(owner.ready());
  auto initiator = std::make_unique<TestSidecar>(node_, "decode", mapper_);
  initiator->ConnectTo(node_, "prefill");
  owner.Signal(SIGSTOP);
  auto fetch = std::async(std::launch::async, [&] {
    return initiator->Acquire("prefill", {"k.0"}, 0, 20'000).error().code;
  });
  auto put = std::async(std::launch::async, [&] {  // it connects, and is not answered
    return initiator->directory().Put("again", node_.AddressOf("prefill"), In(20'000)).error().code;
  });
  std::this_thread::sleep_for(milliseconds(200));
  const TimePoint begin = Clock::now();
  initiator->directory().Close();
  EXPECT_EQ(fetch.get(), ErrorCode::kShuttingDown);
  EXPECT_EQ(put.get(), ErrorCode::kShuttingDown);
  EXPECT_LT(Clock::now() - begin, milliseconds(3'000));
  initiator.reset();
  EXPECT_LT(Clock::now() - begin, milliseconds(4'000));
}

TEST_F(PeerDeathTest, ADeadInitiatorDoesNotHoldARevocationUp) {
  TestArena arena(1 << 20);
  TestSidecar owner(node_, "prefill", mapper_);
  owner.StartServer();
  const auto buffer = owner.Register(arena, "k.0");
  PeerProcess initiator({"initiator", node_.path(), "decode", "prefill"});
  ASSERT_TRUE(initiator.ready());
  initiator.Kill();
  const TimePoint begin = Clock::now();
  const Status removed = owner.registry().Remove(buffer->description().id, In(10'000));
  EXPECT_TRUE(removed) << removed.error().message;
  EXPECT_LT(Clock::now() - begin, milliseconds(3'000));
}

TEST_F(PeerDeathTest, AnInitiatorKilledDuringARevocationConfirmsIt) {
  TestArena arena(1 << 20);
  TestSidecar owner(node_, "prefill", mapper_);
  owner.StartServer();
  const auto buffer = owner.Register(arena, "k.0");
  PeerProcess initiator({"initiator", node_.path(), "decode", "prefill"});
  ASSERT_TRUE(initiator.ready());
  initiator.Signal(SIGSTOP);
  const Status held = owner.registry().Remove(buffer->description().id, In(300));
  ASSERT_FALSE(held) << "a stopped process has it mapped";
  EXPECT_NE(held.error().message.find("decode"), std::string::npos) << held.error().message;
  EXPECT_EQ(mapper_.live(), 1u);
  std::thread killer([&] {
    std::this_thread::sleep_for(milliseconds(200));
    initiator.Kill();
  });
  EXPECT_TRUE(owner.registry().Remove(buffer->description().id, In(10'000)));
  EXPECT_EQ(mapper_.live(), 0u);
  killer.join();
}

}  // namespace
}  // namespace gantry::testing
