#include "lib/base/thread.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <future>
#include <string>
#include <system_error>
#include <utility>

namespace gantry {
namespace {

// As a thread is refused: on the way into it.
struct Refused {
  Refused() = default;
  Refused(Refused&&) noexcept(false) { throw std::system_error(EAGAIN, std::generic_category()); }
  void operator()() const {}
};

TEST(Thread, RunsAndIsJoinedAtItsEnd) {
  std::atomic<bool> ran = false;
  {
    const auto thread = StartThread("gantry-test", [&ran] { ran = true; });
    ASSERT_TRUE(thread);
  }
  EXPECT_TRUE(ran);
}

TEST(Thread, IsAskedToStopWhenItWantsToKnow) {
  auto thread = StartThread("gantry-test", [](const std::stop_token& stop) {
    while (!stop.stop_requested()) std::this_thread::yield();
  });
  ASSERT_TRUE(thread);
  thread->request_stop();
  thread->join();
}

TEST(Thread, HasItsNameAndTakesWhatCanOnlyBeMoved) {
  std::promise<void> end;
  auto thread = StartThread("gantry-test", [until = end.get_future()] { until.wait(); });
  ASSERT_TRUE(thread);
  std::array<char, 16> name = {};
  EXPECT_EQ(::pthread_getname_np(thread->native_handle(), name.data(), name.size()), 0);
  EXPECT_STREQ(name.data(), "gantry-test");
  end.set_value();
}

TEST(Thread, OneThatIsRefusedIsAnErrorThatSaysWhatToRaise) {
  const auto thread = StartThread("gantry-test", Refused());
  ASSERT_FALSE(thread);
  EXPECT_EQ(thread.error().code, ErrorCode::kResourceExhausted);
  EXPECT_EQ(thread.error().message,
            "no thread can be started (gantry-test): Resource temporarily unavailable");
  EXPECT_NE(thread.error().hint.find("pids.max"), std::string::npos);
}

}  // namespace
}  // namespace gantry
