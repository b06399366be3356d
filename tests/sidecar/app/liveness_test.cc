#include "sidecar/app/liveness.h"

#include <gtest/gtest.h>

#include <future>
#include <new>
#include <thread>

namespace gantry {
namespace {

constexpr milliseconds kShort{50};

TEST(LivenessTest, HousekeepingThatStandsStillIsSaid) {
  Liveness liveness(kShort);
  EXPECT_TRUE(liveness.Check());
  std::this_thread::sleep_for(2 * kShort);
  const Status still = liveness.Check();
  ASSERT_FALSE(still);
  EXPECT_EQ(still.error().code, ErrorCode::kInternal);
  EXPECT_NE(still.error().message.find("housekeeping"), std::string::npos);
  liveness.HouseIsKept();
  EXPECT_TRUE(liveness.Check());
}

// A request at the last thread that does not end.
class HangingRequest {
 public:
  HangingRequest(Liveness* liveness, bool may_wait)
      : thread_([may_wait,
                 handler = liveness->Watching([this](const http::Request&) { return Hang(); })] {
          http::Request request;
          request.may_wait = may_wait;
          handler(request);
        }) {
    began_.get_future().wait();
  }
  ~HangingRequest() { Let(); }
  void Let() {
    if (!thread_.joinable()) return;
    end_.set_value();
    thread_.join();
  }

 private:
  http::Response Hang() {
    began_.set_value();
    end_.get_future().wait();
    return {};
  }
  std::promise<void> began_;
  std::promise<void> end_;
  std::thread thread_;
};

Status CheckKeepingHouse(Liveness* liveness) {
  std::this_thread::sleep_for(2 * kShort);
  liveness->HouseIsKept();
  return liveness->Check();
}

TEST(LivenessTest, RequestsThatStandStillAtTheLastThreadAreSaid) {
  Liveness liveness(kShort);
  HangingRequest hanging(&liveness, /*may_wait=*/false);
  const Status still = CheckKeepingHouse(&liveness);
  ASSERT_FALSE(still);
  EXPECT_NE(still.error().message.find("requests"), std::string::npos);
  hanging.Let();
  EXPECT_TRUE(CheckKeepingHouse(&liveness));
}

TEST(LivenessTest, ARequestThatThrowsHasEnded) {
  Liveness liveness(kShort);
  const http::Handler handler =
      liveness.Watching([](const http::Request&) -> http::Response { throw std::bad_alloc(); });
  http::Request request;
  request.may_wait = false;
  EXPECT_THROW(handler(request), std::bad_alloc);
  std::this_thread::sleep_for(2 * kShort);
  liveness.HouseIsKept();
  EXPECT_TRUE(liveness.Check());
}

TEST(LivenessTest, RequestsMayWaitWhileThereAreThreads) {
  Liveness liveness(kShort);
  const HangingRequest waiting(&liveness, /*may_wait=*/true);
  EXPECT_TRUE(CheckKeepingHouse(&liveness));
}

}  // namespace
}  // namespace gantry
