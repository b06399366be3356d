// Which devices a sidecar starts with, and what it refuses to start with.
#include "sidecar/transport/rdma/rdma_devices.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/fakes/fake_verbs.h"

namespace gantry::transport {
namespace {

std::vector<gantry::testing::FakeDeviceOptions> Many(int devices) {
  std::vector<gantry::testing::FakeDeviceOptions> many;
  for (int i = 0; i < devices; ++i) many.push_back({.name = "nic" + std::to_string(i)});
  return many;
}

TEST(RdmaDevicesTest, MoreQueuePairsThanAPeerMakesAreRefusedAtTheStart) {
  gantry::testing::FakeFabric fabric;
  gantry::testing::FakeVerbs host(fabric, Many(17));
  RdmaOptions options;
  options.queue_pairs = 15;
  EXPECT_TRUE(RdmaDevices::Open(options, host)) << "255";
  options.queue_pairs = 16;
  const auto refused = RdmaDevices::Open(options, host);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  for (const char* part : {"17 RDMA devices", "--rdma-queue-pairs 16", "272", "256"}) {
    EXPECT_NE(refused.error().message.find(part), std::string::npos) << refused.error().message;
  }
  EXPECT_FALSE(refused.error().hint.empty());
  for (int i = 0; i < 16; ++i) options.devices.push_back("nic" + std::to_string(i));
  EXPECT_TRUE(RdmaDevices::Open(options, host)) << "256";
}

}  // namespace
}  // namespace gantry::transport
