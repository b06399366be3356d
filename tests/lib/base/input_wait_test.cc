#include "lib/base/input_wait.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <array>
#include <thread>
#include <utility>

#include "lib/base/unique_fd.h"
#include "tests/lib/base/socket_pair.h"

namespace gantry {
namespace {

using std::chrono::seconds;
using testing::SocketPair;

// Takes the byte of an answer that the other end sends after `delay`.
bool AwaitAnswer(InputWait& wait, const UniqueFd& here, const UniqueFd& there, milliseconds delay) {
  std::thread answer([&] {
    std::this_thread::sleep_for(delay);
    EXPECT_EQ(::send(there.get(), "x", 1, 0), 1);
  });
  const bool arrived = wait.Await(here.get(), Clock::now() + seconds(30));
  answer.join();
  char byte = 0;
  return arrived && ::recv(here.get(), &byte, 1, MSG_DONTWAIT) == 1;
}

double ProcessorSeconds() {
  rusage used{};
  EXPECT_EQ(::getrusage(RUSAGE_THREAD, &used), 0);
  return static_cast<double>(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
         1e-6 * static_cast<double>(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

class InputWaitOf : public ::testing::TestWithParam<InputWait::Patience> {};

TEST_P(InputWaitOf, EndsWithTheDeadlineAlsoWhereAnAnswerIsExpectedLater) {
  const auto [here, there] = SocketPair();
  InputWait wait(GetParam());
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(AwaitAnswer(wait, here, there, milliseconds(40)));
  const TimePoint start = Clock::now();
  EXPECT_FALSE(wait.Await(here.get(), start + milliseconds(5)));
  EXPECT_GE(Clock::now() - start, milliseconds(5));
  EXPECT_FALSE(wait.Await(here.get(), start)) << "a deadline that is over";
}

TEST_P(InputWaitOf, SeesAnswersThatAreSoonerOrLaterThanExpected) {
  const auto [here, there] = SocketPair();
  InputWait wait(GetParam());
  for (const int ms : {10, 10, 0, 30, 0, 0, 60, 60, 60, 1, 10}) {
    EXPECT_TRUE(AwaitAnswer(wait, here, there, milliseconds(ms))) << ms;
  }
}

TEST_P(InputWaitOf, SeesTheEndAndWhatIsNoSocket) {
  auto [here, there] = SocketPair();
  InputWait wait(GetParam());
  there.reset();
  EXPECT_TRUE(wait.Await(here.get(), Clock::now() + seconds(30)));
  const int closed = here.get();
  here.reset();
  EXPECT_TRUE(wait.Await(closed, Clock::now() + seconds(30))) << "the reader gets the error";
}

// It looks around the time at which an answer is expected, and sleeps for the rest.
TEST_P(InputWaitOf, SleepsThroughMostOfALongWait) {
  const auto [here, there] = SocketPair();
  InputWait wait(GetParam());
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(AwaitAnswer(wait, here, there, milliseconds(45)));
  const double before = ProcessorSeconds();
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(AwaitAnswer(wait, here, there, milliseconds(45)));
  EXPECT_LT(ProcessorSeconds() - before, 4 * 0.045 / 2);
}

TEST(InputWait, LooksAroundTheTimeThatTheSoonerOfTwoTook) {
  const auto window = [](nanoseconds last, nanoseconds before) {
    const InputWait::Window of = InputWait::WindowOf(last, before);
    return std::pair(of.from, of.until);
  };
  using Pair = std::pair<nanoseconds, nanoseconds>;
  EXPECT_EQ(window(milliseconds(4), milliseconds(40)),
            Pair(microseconds(3'500), microseconds(4'500)));
  EXPECT_EQ(window(milliseconds(40), milliseconds(4)),
            Pair(microseconds(3'500), microseconds(4'500)));
  EXPECT_EQ(window(milliseconds(40), milliseconds(40)), Pair(milliseconds(39), milliseconds(41)));
  EXPECT_EQ(window(microseconds(100), milliseconds(1)), Pair(0, microseconds(400))) << "at once";
  EXPECT_EQ(window(milliseconds(4), nanoseconds(0)), Pair()) << "one alone says nothing";
  EXPECT_EQ(window(milliseconds(400), milliseconds(400)), Pair()) << "too long to be worth it";
}

INSTANTIATE_TEST_SUITE_P(Patient, InputWaitOf,
                         ::testing::Values(InputWait::Patience::kShort, InputWait::Patience::kLong),
                         [](const auto& of) {
                           return of.param == InputWait::Patience::kLong ? "Long" : "Short";
                         });

}  // namespace
}  // namespace gantry
