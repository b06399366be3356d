// How long a peer that executes a transfer is waited for when it does not say that it is quiet.
#include "sidecar/peer/execution/execution_client.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/fakes/counting_mapper.h"
#include "tests/sidecar/peer/raw_owner.h"
#include "tests/sidecar/peer/test_sidecar.h"
#include "tests/sidecar/peer/timed_watcher.h"

namespace gantry::peer {
namespace {

using ::gantry::testing::In;
using ::gantry::testing::NodeDir;
using ::gantry::testing::RawOwner;
using ::gantry::testing::TestSidecar;

// The peers of this sidecar have sessions with it that end at once.
class EasySessions final : public InitiatorSessions {
 public:
  std::vector<std::string> ProofsFor(uint64_t, const std::string&) const override {
    return {std::string(32, 'p')};
  }
  std::vector<std::string> EndSessionsOf(uint64_t, const std::string&) override { return {}; }
  bool AwaitUnmapped(const std::vector<std::string>&, TimePoint) override { return true; }
};

class ExecutionClientTest : public ::testing::Test {
 protected:
  // Until a write at the peer is over, from when it was stopped.
  milliseconds TimeToEnd(const std::string& address, ExecutionClientOptions options, bool begins) {
    EXPECT_TRUE(here_.directory().Put("owner", address, In(begins ? 5'000 : 0)));
    ExecutionClient client(here_.directory(), sessions_, options);
    const auto watch = std::make_shared<TimedWatcher>();
    const auto execution = client.Execute(
        "owner", 0,
        [] {
          wire::PeerExecution what;
          what.operation = wire::Operation::kWrite;
          what.callers.push_back({"", "engine", "kv", 1});
          what.callees.push_back({"", "engine", "kv", 2});
          what.ranges.push_back({0, 0, 0, 0, 4096});
          return what;
        },
        In(60'000), watch);
    if (begins) {
      watch->begun.get_future().wait();
    } else {
      std::this_thread::sleep_for(milliseconds(50));  // a thread has it
    }
    const TimePoint stop = Clock::now();
    execution->Stop();
    const TimePoint end = watch->ended.get_future().get();
    return std::chrono::duration_cast<milliseconds>(end - stop);
  }

  NodeDir node_;
  CountingMapper mapper_;
  TestSidecar here_{node_, "here", mapper_};
  EasySessions sessions_;
};

// The peer notices that nobody listens while it is asked in vain, not only thereafter.
TEST_F(ExecutionClientTest, ThePeersSilenceCountsFromTheEndOfTheCall) {
  RawOwner owner({{std::string(wire::kPeerExecutions)}});
  owner.RefuseToEndExecutions(0, milliseconds(2'500));
  ExecutionClientOptions options;
  options.silence_max = milliseconds(2'000);
  options.quiesce_max = milliseconds(1'000);
  const milliseconds time = TimeToEnd(owner.address(), options, /*begins=*/true);
  EXPECT_GE(time, options.silence_max + options.quiesce_max);
  EXPECT_LT(time, milliseconds(4'500)) << "asking, silence and quiesce were waited for in turn";
}

TEST_F(ExecutionClientTest, APeerThatSaysNotYetKnowsThatItShouldEnd) {
  RawOwner owner({{std::string(wire::kPeerExecutions)}});
  owner.RefuseToEndExecutions(1, milliseconds(0));
  ExecutionClientOptions options;
  options.silence_max = milliseconds(20'000);
  options.quiesce_max = milliseconds(1'000);
  const milliseconds time = TimeToEnd(owner.address(), options, /*begins=*/true);
  EXPECT_GE(time, options.quiesce_max);
  EXPECT_LT(time, milliseconds(5'000)) << "it was given time to notice what it had been told";
}

TEST_F(ExecutionClientTest, OneThatWaitsForAPeerThatIsDownEndsAtOnce) {
  const milliseconds time = TimeToEnd("127.0.0.1:1", {}, /*begins=*/false);
  EXPECT_LT(time, milliseconds(1'500));
}

}  // namespace
}  // namespace gantry::peer
