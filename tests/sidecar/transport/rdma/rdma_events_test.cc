// The thread that waits for devices: what ends must not keep it busy.
#include "sidecar/transport/rdma/verbs/rdma_events.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>

namespace gantry::transport {
namespace {

struct Pipe {
  Pipe() {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
    from = UniqueFd(ends[0]);
    to = UniqueFd(ends[1]);
  }
  UniqueFd from;
  UniqueFd to;
};

class RdmaEventsTest : public ::testing::Test {
 protected:
  // False: it did not come.
  static bool Await(const std::atomic<int>& calls, int least) {
    const TimePoint limit = Clock::now() + milliseconds(5'000);
    while (calls < least && Clock::now() < limit) std::this_thread::sleep_for(milliseconds(1));
    return calls >= least;
  }
  // Of the ends that are watched this one ends; what it says meanwhile.
  std::string EndOf(const UniqueFd& watched, UniqueFd* other) {
    std::atomic<int> calls = 0;
    ::testing::internal::CaptureStderr();
    EXPECT_TRUE(events_->Watch(watched.get(), [&calls] { ++calls; }));
    *other = UniqueFd();
    EXPECT_TRUE(Await(calls, 1));
    std::this_thread::sleep_for(milliseconds(50));
    EXPECT_EQ(calls, 1) << "it spins";
    events_->Ignore(watched.get());
    return ::testing::internal::GetCapturedStderr();
  }

  const std::unique_ptr<RdmaEvents> events_ = *RdmaEvents::Create();
};

TEST_F(RdmaEventsTest, WhatHangsUpIsLookedAtOnceMoreAndSaidOnce) {
  Pipe hangs_up, fails;
  for (const std::string& said :
       {EndOf(hangs_up.from, &hangs_up.to), EndOf(fails.to, &fails.from)}) {
    const size_t at = said.find("events have ended");
    ASSERT_NE(at, std::string::npos);
    EXPECT_EQ(said.find("events have ended", at + 1), std::string::npos);
  }
}

TEST_F(RdmaEventsTest, OthersAreHeardOfAfterOneHungUp) {
  Pipe gone, other;
  (void)EndOf(gone.from, &gone.to);
  std::atomic<int> calls = 0;
  ASSERT_TRUE(events_->Watch(other.from.get(), [&] {
    char byte = 0;
    while (::read(other.from.get(), &byte, 1) == 1) ++calls;
  }));
  for (int i = 1; i <= 3; ++i) {
    ASSERT_EQ(::write(other.to.get(), "x", 1), 1);
    ASSERT_TRUE(Await(calls, i));
  }
  std::atomic<int> timers = 0;
  events_->CallAt(Clock::now() + milliseconds(5), [&timers] { ++timers; });
  EXPECT_TRUE(Await(timers, 1));
  events_->Ignore(other.from.get());
}

TEST_F(RdmaEventsTest, WhatIsNoDescriptorIsRefused) {
  EXPECT_FALSE(events_->Watch(-1, [] {}));
}

}  // namespace
}  // namespace gantry::transport
