#include "lib/base/poll_fd.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <future>
#include <string>
#include <thread>

#include "lib/base/unique_fd.h"
#include "tests/lib/base/socket_pair.h"
#include "tests/lib/base/thread_time.h"

namespace gantry {
namespace {

using std::chrono::seconds;
using testing::SocketPair;
using testing::ThreadProcessorSeconds;

bool Sleeps(pid_t thread) {
  std::ifstream stat("/proc/self/task/" + std::to_string(thread) + "/stat");
  std::string line;
  std::getline(stat, line);
  const size_t name_end = line.rfind(')');
  return name_end != std::string::npos && line.substr(name_end, 3) == ") S";
}

TEST(AwaitInput, EndsWithTheDeadline) {
  const auto [here, there] = SocketPair();
  const TimePoint start = Clock::now();
  EXPECT_FALSE(AwaitInput(here.get(), start + milliseconds(20)));
  EXPECT_GE(Clock::now() - start, milliseconds(20));
  EXPECT_FALSE(AwaitInput(here.get(), start)) << "a deadline that is over";
}

TEST(AwaitInput, SeesBytesTheEndAndWhatIsNoSocket) {
  auto [here, there] = SocketPair();
  ASSERT_EQ(::send(there.get(), "x", 1, 0), 1);
  EXPECT_TRUE(AwaitInput(here.get(), TimePoint::max()));
  char byte = 0;
  ASSERT_EQ(::recv(here.get(), &byte, 1, 0), 1);
  there.reset();
  EXPECT_TRUE(AwaitInput(here.get(), TimePoint::max()));
  const int closed = here.get();
  here.reset();
  EXPECT_TRUE(AwaitInput(closed, Clock::now() + seconds(30))) << "the reader gets the error";
}

// Who blocks in recv is woken once more for each time that the other side reads what was sent.
TEST(AwaitInput, TheOtherSideReadingWakesNobody) {
  const auto [here, there] = SocketPair();
  constexpr int kRounds = 200;  // many more than an emulator's own locks switch it
  std::promise<pid_t> started;
  long switches = 0;
  std::thread reader([&, socket = here.get()] {
    started.set_value(::gettid());
    rusage before{};
    rusage after{};
    ASSERT_EQ(::getrusage(RUSAGE_THREAD, &before), 0);
    EXPECT_TRUE(AwaitInput(socket, Clock::now() + seconds(30)));
    ASSERT_EQ(::getrusage(RUSAGE_THREAD, &after), 0);
    switches = after.ru_nvcsw - before.ru_nvcsw;
  });
  const pid_t thread = started.get_future().get();
  for (int round = 0; round < kRounds; ++round) {
    while (!Sleeps(thread)) std::this_thread::yield();
    char byte = 'x';
    ASSERT_EQ(::send(here.get(), &byte, 1, 0), 1);
    ASSERT_EQ(::recv(there.get(), &byte, 1, 0), 1);
  }
  while (!Sleeps(thread)) std::this_thread::yield();
  ASSERT_EQ(::send(there.get(), "x", 1, 0), 1);
  reader.join();
  EXPECT_LT(switches, kRounds / 2);
}

// Takes the byte of an answer that the other end sends after `delay`.
bool AwaitAnswer(const UniqueFd& here, const UniqueFd& there, milliseconds delay) {
  std::thread answer([&] {
    std::this_thread::sleep_for(delay);
    EXPECT_EQ(::send(there.get(), "x", 1, 0), 1);
  });
  const bool arrived = AwaitInputSoon(here.get(), Clock::now() + seconds(30));
  answer.join();
  char byte = 0;
  return arrived && ::recv(here.get(), &byte, 1, MSG_DONTWAIT) == 1;
}

TEST(AwaitInputSoon, EndsWithTheDeadline) {
  const auto [here, there] = SocketPair();
  for (const microseconds wait : {microseconds(20), microseconds(5'000)}) {
    const TimePoint start = Clock::now();
    EXPECT_FALSE(AwaitInputSoon(here.get(), start + wait));
    EXPECT_GE(Clock::now() - start, wait);
    EXPECT_FALSE(AwaitInputSoon(here.get(), start)) << "a deadline that is over";
  }
}

TEST(AwaitInputSoon, SeesAnswersSoonAndLate) {
  const auto [here, there] = SocketPair();
  for (const int ms : {10, 0, 30, 0, 0, 60, 1}) {
    EXPECT_TRUE(AwaitAnswer(here, there, milliseconds(ms))) << ms;
  }
}

TEST(AwaitInputSoon, SeesTheEndAndWhatIsNoSocket) {
  auto [here, there] = SocketPair();
  there.reset();
  EXPECT_TRUE(AwaitInputSoon(here.get(), Clock::now() + seconds(30)));
  const int closed = here.get();
  here.reset();
  EXPECT_TRUE(AwaitInputSoon(closed, Clock::now() + seconds(30))) << "the reader gets the error";
}

TEST(AwaitInputSoon, SleepsThroughALongWait) {
  const auto [here, there] = SocketPair();
  const double before = ThreadProcessorSeconds();
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(AwaitAnswer(here, there, milliseconds(45)));
  EXPECT_LT(ThreadProcessorSeconds() - before, 4 * 0.045 / 4);
}

}  // namespace
}  // namespace gantry
