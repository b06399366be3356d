// Real sockets and real processes: hand-over, budgets, bad clients, and the owner's death
// (invariant 10).
#include "sidecar/registry/handoff_server.h"

#include <gmock/gmock.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <condition_variable>
#include <mutex>

#include "lib/base/random_id.h"
#include "tests/fakes/test_folder.h"
#include "tests/sidecar/registry/handoff_client.h"
#include "tests/sidecar/registry/registry_fixture.h"

namespace gantry::registry {
namespace {

class HandoffServerTest : public ::testing::Test {
 protected:
  explicit HandoffServerTest(HandoffServer::Options options = {})
      : workloads_(
            {.fds_per_workload_max = 600},
            [this](const WorkloadInfo& workload, std::string_view why) { OnEnd(workload, why); }) {
    options.socket_path = path_;
    auto server = HandoffServer::Start(std::move(options), workloads_);
    EXPECT_TRUE(server) << server.error().message;
    server_ = *std::move(server);
  }
  ~HandoffServerTest() override { server_.reset(); }

  void OnEnd(const WorkloadInfo& workload, std::string_view why) {
    std::unique_lock lock(mutex_);
    if (workload.name == slow_) unblocked_.wait(lock, [this] { return slow_.empty(); });
    ended_.push_back(workload.name + ": " + std::string(why));
    changed_.notify_all();
  }
  // False when it takes longer than the second that invariant 10 allows (with slack for a
  // sanitizer's slowness).
  bool AwaitEnds(size_t count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(2), [&] { return ended_.size() >= count; });
  }
  std::vector<std::string> ended() {
    const std::lock_guard lock(mutex_);
    return ended_;
  }

  // Descriptors of connections that closed a moment ago may still be open.
  static bool SettlesAt(int descriptors) {
    for (int i = 0; i < 1000 && OpenDescriptors() != descriptors; ++i) {
      std::this_thread::sleep_for(milliseconds(1));
    }
    return OpenDescriptors() == descriptors;
  }

  WorkloadInfo Put(const std::string& name) {
    return *workloads_.Put(name, "engine", ::getuid(), std::nullopt);
  }

  // A child that runs `body` and then waits to be killed. `body` touches no lock of the parent.
  template <typename Body>
  static pid_t Fork(const Body& body) {
    const pid_t child = ::fork();
    if (child != 0) return child;
    body();
    while (true) ::pause();
  }
  static void Kill(pid_t child) {
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::condition_variable unblocked_;
  std::string slow_;  // the end of this workload does not return while it is named here
  std::vector<std::string> ended_;
  WorkloadTable workloads_;
  const gantry::testing::TestFolder folder_;
  const std::string path_ = folder_.File("handoff.sock");
  std::unique_ptr<HandoffServer> server_;
};

TEST_F(HandoffServerTest, AttachHandOverAndRelease) {
  const WorkloadInfo info = Put("w");
  HandoffClient client(path_);
  const auto attached = client.Attach(info.lease_token);
  ASSERT_TRUE(attached) << attached.error().message;
  EXPECT_EQ(attached->workload, "w");
  EXPECT_EQ(attached->generation, info.generation);
  EXPECT_EQ(workloads_.Get("w")->pid, ::getpid());

  const UniqueFd memory = MakeMemfd(4096);
  const auto reply = client.HandOver({memory.get(), memory.get()});
  ASSERT_TRUE(reply) << reply.error().message;
  ASSERT_EQ(reply->tokens.size(), 2u);
  const auto kept = workloads_.FdByToken("w", reply->tokens[1]);
  ASSERT_TRUE(kept);
  struct stat here = {};
  struct stat there = {};
  ASSERT_EQ(::fstat(memory.get(), &here), 0);
  ASSERT_EQ(::fstat((*kept)->get(), &there), 0);
  EXPECT_EQ(here.st_ino, there.st_ino);
  EXPECT_NE(::fcntl((*kept)->get(), F_GETFD) & FD_CLOEXEC, 0);
  EXPECT_TRUE(client.Release(reply->tokens));
  EXPECT_TRUE(client.Ping());
  EXPECT_TRUE(FailsWith(client.Release(reply->tokens), ErrorCode::kNotFound));
}

TEST_F(HandoffServerTest, FullMessagesAndTheBudget) {
  HandoffClient client(path_);
  ASSERT_TRUE(client.Attach(Put("w").lease_token));
  const UniqueFd memory = MakeMemfd(4096);
  const std::vector<int> many(kFdsPerMessageMax, memory.get());
  const int before = OpenDescriptors();
  const auto first = client.HandOver(many);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->tokens.size(), kFdsPerMessageMax);
  ASSERT_TRUE(client.HandOver(many));
  EXPECT_TRUE(FailsWith(client.HandOver(many), ErrorCode::kResourceExhausted));
  EXPECT_EQ(OpenDescriptors(), before + 2 * static_cast<int>(kFdsPerMessageMax));
  EXPECT_TRUE(client.Release(first->tokens));
  EXPECT_TRUE(client.HandOver(many));
}

TEST_F(HandoffServerTest, BadMessagesAreAnsweredAndKeepNothing) {
  const UniqueFd memory = MakeMemfd(4096);
  HandoffClient client(path_);
  ASSERT_TRUE(client.Ping());
  const int before = OpenDescriptors();
  EXPECT_TRUE(FailsWith(client.HandOver({memory.get()}), ErrorCode::kUnauthenticated));
  EXPECT_TRUE(FailsWith(client.Exchange("{"), ErrorCode::kMalformedBody));
  EXPECT_TRUE(FailsWith(client.Exchange(std::string(60'000, '[')), ErrorCode::kMalformedBody));
  EXPECT_TRUE(FailsWith(client.Exchange(std::string(70'000, ' ')), ErrorCode::kMalformedBody));
  EXPECT_TRUE(FailsWith(client.Exchange(R"({"type":"ping"})", {memory.get()}),
                        ErrorCode::kInvalidArgument));
  EXPECT_TRUE(FailsWith(client.Attach(RandomToken()), ErrorCode::kUnauthenticated));
  const WorkloadInfo info = Put("w");
  ASSERT_TRUE(client.Attach(info.lease_token));
  EXPECT_TRUE(FailsWith(client.Exchange(R"({"type":"fds","count":2})", {memory.get()}),
                        ErrorCode::kInvalidArgument));
  EXPECT_TRUE(
      FailsWith(client.Exchange(R"({"type":"fds","count":1})"), ErrorCode::kInvalidArgument));
  EXPECT_TRUE(FailsWith(client.Attach(Put("v").lease_token), ErrorCode::kConflict));
  EXPECT_TRUE(FailsWith(HandoffClient(path_).Attach(info.lease_token), ErrorCode::kConflict));
  EXPECT_TRUE(client.Ping());
  EXPECT_TRUE(SettlesAt(before));
}

// Invariant 10.
TEST_F(HandoffServerTest, ClosingTheSocketEndsTheWorkloadOnce) {
  const WorkloadInfo info = Put("w");
  HandoffClient client(path_);
  ASSERT_TRUE(client.Attach(info.lease_token));
  client.Close();
  ASSERT_TRUE(AwaitEnds(1));
  EXPECT_TRUE(FailsWith(workloads_.Get("w"), ErrorCode::kNotFound));
  server_.reset();
  EXPECT_THAT(ended(), ::testing::ElementsAre("w: its hand-off connection closed"));
}

// By which GPU memory of one process is known, whatever workloads it registered it for.
TEST_F(HandoffServerTest, TheProcessOfALeaseIsToldFromEveryOther) {
  HandoffClient clients[] = {HandoffClient(path_), HandoffClient(path_)};
  ASSERT_TRUE(clients[0].Attach(Put("w").lease_token));
  ASSERT_TRUE(clients[1].Attach(Put("v").lease_token));
  const WorkloadInfo others = Put("u");
  const pid_t other = Fork([&] {
    static HandoffClient client(path_);
    if (!client.Attach(others.lease_token)) ::_exit(1);
  });
  while (!workloads_.Get("u")->attached) std::this_thread::sleep_for(milliseconds(1));
  const std::string process = workloads_.Get("w")->process;
  if (!process.empty()) {  // since Linux 6.9
    EXPECT_EQ(workloads_.Get("v")->process, process);
    EXPECT_NE(workloads_.Get("u")->process, process);
  }
  Kill(other);
  ASSERT_TRUE(AwaitEnds(1));
}

// Invariant 10.
TEST_F(HandoffServerTest, KilledOwnerEndsWithinASecond) {
  const WorkloadInfo info = Put("w");
  const pid_t owner = Fork([&] {
    static HandoffClient client(path_);
    if (!client.Attach(info.lease_token)) ::_exit(1);
  });
  while (!workloads_.Get("w")->attached) std::this_thread::sleep_for(milliseconds(1));
  EXPECT_EQ(workloads_.Get("w")->pid, owner);
  const TimePoint killed = Clock::now();
  Kill(owner);
  ASSERT_TRUE(AwaitEnds(1));
  EXPECT_LT(SecondsBetween(killed, Clock::now()), 1.0);
}

// Invariant 10: the socket of the dead owner is still open in its child.
TEST_F(HandoffServerTest, ChildThatKeepsTheSocketDoesNotKeepTheLease) {
  const WorkloadInfo info = Put("w");
  std::array<int, 2> pipe = {};
  ASSERT_EQ(::pipe(pipe.data()), 0);
  const pid_t owner = Fork([&] {
    static HandoffClient client(path_);
    if (!client.Attach(info.lease_token)) ::_exit(1);
    const pid_t child = Fork([] {});
    if (::write(pipe[1], &child, sizeof(child)) != sizeof(child)) ::_exit(1);
  });
  pid_t child = 0;
  ASSERT_EQ(::read(pipe[0], &child, sizeof(child)), static_cast<ssize_t>(sizeof(child)));
  ASSERT_TRUE(workloads_.Get("w")->attached);
  const TimePoint killed = Clock::now();
  Kill(owner);
  EXPECT_TRUE(AwaitEnds(1));
  EXPECT_LT(SecondsBetween(killed, Clock::now()), 1.0);
  EXPECT_EQ(::kill(child, 0), 0);
  EXPECT_THAT(ended(), ::testing::ElementsAre("w: its process ended"));
  ::kill(child, SIGKILL);
  ::close(pipe[0]);
  ::close(pipe[1]);
}

TEST_F(HandoffServerTest, StoppingEndsThoseThatAreAttached) {
  HandoffClient client(path_);
  ASSERT_TRUE(client.Attach(Put("w").lease_token));
  Put("by-time");
  server_.reset();
  EXPECT_THAT(ended(), ::testing::ElementsAre("w: the sidecar stops"));
}

TEST_F(HandoffServerTest, LeasesByTimeEnd) {
  ASSERT_TRUE(workloads_.Put("w", "engine", ::getuid(), milliseconds(30)));
  ASSERT_TRUE(AwaitEnds(1));
  EXPECT_THAT(ended(), ::testing::ElementsAre("w: its lease ran out"));
}

TEST_F(HandoffServerTest, SlowEndHoldsUpNoOtherWorkload) {
  slow_ = "slow";
  HandoffClient slow(path_);
  ASSERT_TRUE(slow.Attach(Put("slow").lease_token));
  HandoffClient other(path_);
  ASSERT_TRUE(other.Attach(Put("other").lease_token));
  slow.Close();
  HandoffClient third(path_);
  EXPECT_TRUE(third.Attach(Put("third").lease_token));
  other.Close();
  EXPECT_TRUE(AwaitEnds(1));
  EXPECT_THAT(ended(), ::testing::ElementsAre("other: its hand-off connection closed"));
  const std::lock_guard lock(mutex_);
  slow_.clear();
  unblocked_.notify_all();
}

// A client that sends and never reads fills only its own socket.
TEST_F(HandoffServerTest, ClientThatNeverReadsBlocksNobody) {
  HandoffClient deaf(path_);
  ASSERT_EQ(::fcntl(deaf.socket(), F_SETFL, O_NONBLOCK), 0);
  int sent = 0;
  for (int idle = 0; idle < 20;) {
    if (deaf.Send(R"({"type":"ping"})")) {
      ++sent;
      idle = 0;
    } else {
      ++idle;  // both directions may be full now
      std::this_thread::sleep_for(milliseconds(1));
    }
  }
  HandoffClient other(path_);
  EXPECT_TRUE(other.Attach(Put("w").lease_token));
  EXPECT_TRUE(other.Ping());
  // Once it reads, it gets the answer to each of its messages.
  ASSERT_EQ(::fcntl(deaf.socket(), F_SETFL, 0), 0);
  for (int i = 0; i < sent; ++i) ASSERT_TRUE(deaf.Receive()) << i << " of " << sent;
}

TEST_F(HandoffServerTest, DeletedWorkloadsConnectionIsClosed) {
  HandoffClient client(path_);
  ASSERT_TRUE(client.Attach(Put("w").lease_token));
  ASSERT_TRUE(workloads_.Remove("w", "deleted"));
  EXPECT_TRUE(FailsWith(client.Receive(), ErrorCode::kPeerLost));
  EXPECT_EQ(ended().size(), 1u);
}

// Nothing is left of a thousand owners that come, hand over and go.
TEST_F(HandoffServerTest, AThousandRoundsLeakNoDescriptor) {
  const UniqueFd memory = MakeMemfd(4096);
  const int before = OpenDescriptors();
  for (size_t round = 0; round < 1000; ++round) {
    const WorkloadInfo info = Put("w");
    HandoffClient client(path_);
    ASSERT_TRUE(client.Attach(info.lease_token));
    ASSERT_TRUE(client.HandOver(std::vector<int>(3, memory.get())));
    client.Close();
    ASSERT_TRUE(AwaitEnds(round + 1)) << round;
  }
  EXPECT_TRUE(SettlesAt(before));
}

TEST_F(HandoffServerTest, KilledProcessesLeakNoDescriptor) {
  const UniqueFd memory = MakeMemfd(4096);
  const int before = OpenDescriptors();
  for (size_t round = 0; round < 30; ++round) {
    const WorkloadInfo info = Put("w");
    const pid_t owner = Fork([&] {
      static HandoffClient client(path_);
      if (!client.Attach(info.lease_token) || !client.HandOver({memory.get()})) ::_exit(1);
    });
    while (workloads_.Get("w")->fds_held == 0) std::this_thread::sleep_for(milliseconds(1));
    Kill(owner);
    ASSERT_TRUE(AwaitEnds(round + 1)) << round;
  }
  EXPECT_TRUE(SettlesAt(before));
}

class HandoffLimitsTest : public HandoffServerTest {
 protected:
  HandoffLimitsTest()
      : HandoffServerTest(
            {.socket_path = {}, .connections_max = 3, .attach_timeout = milliseconds(100)}) {}
};

TEST_F(HandoffLimitsTest, ConnectionWithoutALeaseIsClosedAfterAWhile) {
  HandoffClient idle(path_);
  const TimePoint begin = Clock::now();
  EXPECT_TRUE(FailsWith(idle.Receive(), ErrorCode::kPeerLost));
  EXPECT_GE(Clock::now() - begin, milliseconds(90));
  HandoffClient attached(path_);
  ASSERT_TRUE(attached.Attach(Put("w").lease_token));
  std::this_thread::sleep_for(milliseconds(600));
  EXPECT_TRUE(attached.Ping());
}

TEST_F(HandoffLimitsTest, IdleConnectionsDoNotKeepLeasesOut) {
  std::vector<HandoffClient> crowd;
  for (int i = 0; i < 20; ++i) crowd.emplace_back(path_);
  std::vector<HandoffClient> owners;
  for (int i = 0; i < 3; ++i) {
    owners.emplace_back(path_);
    ASSERT_TRUE(owners.back().Attach(Put("w" + std::to_string(i)).lease_token)) << i;
  }
  HandoffClient refused(path_);
  EXPECT_FALSE(refused.Ping());  // all places hold leases
  for (HandoffClient& owner : owners) EXPECT_TRUE(owner.Ping());
  owners.pop_back();
  ASSERT_TRUE(AwaitEnds(1));
  EXPECT_TRUE(HandoffClient(path_).Ping());
}

}  // namespace
}  // namespace gantry::registry
