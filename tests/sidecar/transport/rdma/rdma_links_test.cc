// Which devices are joined to one another for work that no lane fits, how many of these there may
// be, and what becomes of those that fail.
#include "sidecar/transport/rdma/rdma_links.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "tests/fakes/fake_verbs.h"

namespace gantry::transport {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr size_t kDevices = 4;
constexpr int kCrossings = 2;  // that there is room for

class RdmaLinksTest : public ::testing::Test {
 protected:
  static RdmaOptions Options() {
    RdmaOptions options;
    options.queue_pairs = wire::kQueuePairsMax / (static_cast<int>(kDevices) + kCrossings);
    return options;
  }
  std::vector<RdmaLink> Crossings() const {
    std::vector<RdmaLink> links = links_.all();
    links.erase(links.begin(), links.begin() + kDevices);
    return links;
  }
  void ExpectAdds(DeviceSet here, DeviceSet there) {
    const Result<bool> added = links_.AddCrossing(here, there);
    ASSERT_TRUE(added) << added.error().message;
    EXPECT_TRUE(*added);
  }

  gantry::testing::FakeFabric fabric_;
  gantry::testing::FakeVerbs host_{fabric_, {{"a"}, {"b"}, {"c"}, {"d"}}};
  const std::unique_ptr<RdmaDevices> devices_ = *RdmaDevices::Open(Options(), host_);
  RdmaLinks links_{*devices_, kDevices};
  const Error why_{ErrorCode::kDeviceError, "it is broken"};
};

TEST_F(RdmaLinksTest, EachIsJoinedWithThatOfItsPlace) {
  EXPECT_THAT(links_.all(),
              ElementsAre(RdmaLink{0, 0}, RdmaLink{1, 1}, RdmaLink{2, 2}, RdmaLink{3, 3}));
  EXPECT_THAT(RdmaLinks(*devices_, 3).all().back(), (RdmaLink{3, 0}));
  EXPECT_TRUE(RdmaLinks(*devices_, 0).all().empty());
}

TEST_F(RdmaLinksTest, WhatNoLaneFitsIsJoinedEachWithAnother) {
  ExpectAdds({0, 1}, {2, 3});
  EXPECT_THAT(Crossings(), ElementsAre(RdmaLink{0, 2}, RdmaLink{1, 3}));
  const Result<bool> again = links_.AddCrossing({0, 1}, {2, 3});
  EXPECT_TRUE(again && !*again) << "they are to be made";
}

TEST_F(RdmaLinksTest, ThereAreNeverMoreThanThePeerMakesQueuePairsFor) {
  ExpectAdds({0}, {1});
  ExpectAdds({2, 3}, {0, 1});
  EXPECT_THAT(Crossings(), ElementsAre(RdmaLink{2, 0}, RdmaLink{3, 1}));
  ExpectAdds({0, 1, 2, 3}, {3});
  EXPECT_THAT(Crossings(), ElementsAre(RdmaLink{0, 3}, RdmaLink{1, 3}));
}

TEST_F(RdmaLinksTest, WorkWaitsForWhatIsTriedAgainAndFailsWhenThatIsInVain) {
  const TimePoint now = Clock::now();
  const RdmaLink own = {1, 1};
  for (int time = 1; time <= 3; ++time) {
    const Result<bool> waits = links_.AddCrossing({1}, {1});
    EXPECT_TRUE(waits && !*waits) << time;
    const RdmaLinks::Noted noted = links_.LeaveOut(own, why_, now);
    EXPECT_EQ(noted.is_new, time == 1);
    EXPECT_EQ(noted.again_at, now + milliseconds(250 << (time - 1)));
    EXPECT_TRUE(links_.Rests(own, now));
    EXPECT_FALSE(links_.Rests(own, noted.again_at));
  }
  const Result<bool> failed = links_.AddCrossing({1}, {1});
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, why_.code);
  EXPECT_THAT(failed.error().message, HasSubstr(why_.message));
  links_.Use(own);
  EXPECT_FALSE(links_.Rests(own, now));
  EXPECT_TRUE(links_.AddCrossing({1}, {1}));
}

TEST_F(RdmaLinksTest, OnlyDevicesWithAnActivePortAreJoined) {
  host_.SetPort("a", false);
  devices_->TakeEvents(0);
  ExpectAdds({0, 1}, {2});
  EXPECT_THAT(Crossings(), ElementsAre(RdmaLink{1, 2}));
  const Result<bool> none = links_.AddCrossing({0}, {2});
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ErrorCode::kPathUnavailable);
  EXPECT_THAT(none.error().message, HasSubstr("active port: a"));
}

}  // namespace
}  // namespace gantry::transport
