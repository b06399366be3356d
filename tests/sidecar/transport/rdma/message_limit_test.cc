// No work request is longer than what the ports of both sides take as one message.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "tests/fakes/fake_verbs.h"
#include "tests/sidecar/transport/rdma/rdma_world.h"

namespace gantry::transport {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr uint64_t kMovedBytes = 1 << 20;
constexpr uint32_t kSmall = 64 << 10;

gantry::testing::FakeDeviceOptions Device(const std::string& name, uint32_t message_bytes_max) {
  gantry::testing::FakeDeviceOptions device{.name = name};
  device.port.message_bytes_max = message_bytes_max;
  return device;
}

class MessageLimit : public ::testing::Test {
 protected:
  using Devices = std::vector<gantry::testing::FakeDeviceOptions>;

  void Make(const Devices& here, const Devices& there, const RdmaOptions& options = {}) {
    here_ = std::make_unique<gantry::testing::FakeVerbs>(fabric_, here);
    there_ = std::make_unique<gantry::testing::FakeVerbs>(fabric_, there);
    world_.emplace(*here_, *there_, options, options);
  }
  // All of it, in work requests of so many bytes each.
  void ExpectMovedBy(uint64_t slice_bytes, wire::Operation direction, RemoteAllocation target) {
    const auto operation =
        world_->transport_.Start(world_->WithNics(PlanOf(direction, world_->Local(local_),
                                                         std::move(target), 0, 0, kMovedBytes)),
                                 0, 1);
    ASSERT_TRUE(world_->Finish(*operation));
    ASSERT_FALSE(operation->error()) << operation->error()->message;
    EXPECT_EQ(operation->progress().chunks_total, kMovedBytes / slice_bytes);
    EXPECT_EQ(operation->progress().chunks_retried, 0u);
    EXPECT_EQ(std::memcmp(local_.data(), remote_.data(), kMovedBytes), 0);
  }
  void ExpectMovedBy(uint64_t slice_bytes) {
    for (const auto direction : {wire::Operation::kWrite, wire::Operation::kRead}) {
      std::memset(direction == wire::Operation::kWrite ? remote_.data() : local_.data(), 7,
                  kMovedBytes);
      ExpectMovedBy(slice_bytes, direction, world_->Remote(world_->Describe(remote_)));
    }
  }

  gantry::testing::FakeFabric fabric_;
  std::unique_ptr<gantry::testing::FakeVerbs> here_;
  std::unique_ptr<gantry::testing::FakeVerbs> there_;
  const gantry::testing::TestArena local_{kMovedBytes, 1};
  const gantry::testing::TestArena remote_{kMovedBytes, 2};
  std::optional<RdmaWorld> world_;
};

TEST_F(MessageLimit, TheSmallestOfTheDevicesHereHolds) {
  ::testing::internal::CaptureStderr();
  Make({Device("a0", 8 << 20), Device("a1", kSmall), Device("a2", 2 * kSmall)},
       {Device("b0", 8 << 20)});
  const std::string log = ::testing::internal::GetCapturedStderr();
  const std::string said = "work requests are smaller than --rdma-slice-bytes";
  ASSERT_THAT(log, HasSubstr(said));
  EXPECT_THAT(log.substr(log.find(said) + 1), Not(HasSubstr(said))) << "once";
  EXPECT_THAT(log, HasSubstr(R"("device":"a1","bytes":65536,"asked_for":1048576)"));
  ExpectMovedBy(kSmall);
}

TEST_F(MessageLimit, ThePeersHoldsLikewise) {
  ::testing::internal::CaptureStderr();
  Make({Device("a0", 8 << 20)}, {Device("b0", 8 << 20), Device("b1", kSmall / 4)});
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr(R"("device":"b1")")) << "the peer of itself";
  EXPECT_THAT(log, Not(HasSubstr(R"("device":"a0","bytes")")));
  ExpectMovedBy(kSmall / 4);
}

TEST_F(MessageLimit, WhatIsAskedForHoldsWhereItIsLess) {
  RdmaOptions options;
  options.slice_bytes = kSmall / 2;
  ::testing::internal::CaptureStderr();
  Make({Device("a0", kSmall)}, {Device("b0", kSmall)}, options);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), Not(HasSubstr("smaller than")));
  ExpectMovedBy(kSmall / 2);
}

TEST_F(MessageLimit, WhereAPeerTellsNoneTheDevicesHereDecide) {
  Make({Device("a0", kSmall)}, {Device("b0", 8 << 20)});
  std::vector<wire::RdmaDeviceAddress> told = world_->devices_there_->Addresses();
  ASSERT_EQ(told[0].message_bytes_max, 8U << 20);
  told[0].message_bytes_max = 0;
  const auto peer =
      world_->transport_.AddPeer("older", std::make_shared<DirectExchange>(world_->target_, told));
  ExpectMovedBy(kSmall, wire::Operation::kWrite,
                {nullptr, std::make_shared<RdmaRemoteBuffer>(peer, world_->Describe(remote_),
                                                             DeviceSet::All())});
}

TEST_F(MessageLimit, APortThatTellsNoneHasNone) {
  Make({Device("a0", 0)}, {Device("b0", 0)});
  ExpectMovedBy(RdmaOptions().slice_bytes);
}

TEST_F(MessageLimit, ADeviceThatTakesLessThanAPageIsLeftOut) {
  for (const uint32_t bytes : {4095U, 4096U}) {
    gantry::testing::FakeVerbs host(fabric_, {Device("tiny", bytes)});
    const auto opened = RdmaDevices::Open({}, host);
    ASSERT_EQ(opened.has_value(), bytes == 4096);
    if (opened) continue;
    EXPECT_EQ(opened.error().code, ErrorCode::kPathUnavailable);
    EXPECT_THAT(opened.error().message, HasSubstr("tiny takes messages of 4095 bytes"));
  }
}

}  // namespace
}  // namespace gantry::transport
