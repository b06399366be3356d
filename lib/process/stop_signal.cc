#include "lib/process/stop_signal.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <thread>
#include <utility>

#include "lib/base/thread.h"

namespace gantry {
namespace {

constexpr unsigned kSecondsToSayIt = 1;

sigset_t SetOf(std::initializer_list<int> signals) {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int signal : signals) ::sigaddset(&set, signal);
  return set;
}

// The alarm ends the process where even `before_force` stands still.
[[noreturn]] void EndByForce(const std::function<void()>& before_force) {
  const sigset_t alarm = SetOf({SIGALRM});
  ::signal(SIGALRM, SIG_DFL);
  ::pthread_sigmask(SIG_UNBLOCK, &alarm, nullptr);
  ::alarm(kSecondsToSayIt);
  before_force();
  ::_exit(StopSignal::kExitForced);
}

}  // namespace

Result<StopSignal> StopSignal::Watch(milliseconds time_to_stop,
                                     std::function<void()> before_force) {
  const sigset_t stop = SetOf({SIGTERM, SIGINT});
  ::pthread_sigmask(SIG_BLOCK, &stop, nullptr);
  auto signal = std::make_shared<std::atomic<int>>(0);
  ASSIGN_OR_RETURN(std::jthread thread,
                   StartThread("gantry-stop", [stop, signal, time_to_stop,
                                               before_force = std::move(before_force)] {
                     int number = 0;
                     ::sigwait(&stop, &number);
                     *signal = number;
                     signal->notify_all();
                     std::this_thread::sleep_for(time_to_stop);
                     EndByForce(before_force);
                   }));
  thread.detach();
  return StopSignal(std::move(signal));
}

int StopSignal::Await() const {
  signal_->wait(0);
  return *signal_;
}

}  // namespace gantry
