#include "lib/process/stop_signal.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

namespace gantry {
namespace {

// Each in a child: signals are the process's.
[[noreturn]] void StopAndStay(int signal, std::function<void()> before_force) {
  const auto stop = StopSignal::Watch(milliseconds(50), std::move(before_force));
  if (!stop) ::_exit(2);
  ::kill(::getpid(), signal);
  if (stop->Await() != signal) ::_exit(3);
  while (true) ::pause();
}

TEST(StopSignalTest, WhoDoesNotStopEndsByForceAndSaysIt) {
  for (const int signal : {SIGTERM, SIGINT}) {
    EXPECT_EXIT(StopAndStay(signal, [] { (void)!::write(STDERR_FILENO, "by force", 8); }),
                ::testing::ExitedWithCode(StopSignal::kExitForced), "by force");
  }
}

TEST(StopSignalTest, AlsoWhoDoesNotAwaitTheSignal) {
  const auto start_for_ever = [] {
    const auto stop = StopSignal::Watch(milliseconds(50), [] {});
    ::kill(::getpid(), SIGTERM);
    while (true) ::pause();
  };
  EXPECT_EXIT(start_for_ever(), ::testing::ExitedWithCode(StopSignal::kExitForced), "");
}

TEST(StopSignalTest, AlsoWhereSayingItStandsStill) {
  const auto stand_still = [] {
    while (true) ::pause();
  };
  EXPECT_EXIT(StopAndStay(SIGTERM, stand_still), ::testing::KilledBySignal(SIGALRM), "");
}

TEST(StopSignalTest, WhoStopsInTimeEndsAsItLikes) {
  const auto stop_at_once = [] {
    const auto stop = StopSignal::Watch(milliseconds(60'000), [] {});
    ::kill(::getpid(), SIGTERM);
    ::_exit(stop->Await() == SIGTERM ? 0 : 3);
  };
  EXPECT_EXIT(stop_at_once(), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace gantry
