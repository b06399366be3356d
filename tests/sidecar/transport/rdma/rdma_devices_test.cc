// Which devices a sidecar starts with, and what it refuses to start with.
#include "sidecar/transport/rdma/verbs/rdma_devices.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
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

TEST(RdmaDevicesTest, RegionsAreAsLargeAsTheOptionSaysOrElseTheDevice) {
  gantry::testing::FakeFabric fabric;
  gantry::testing::FakeDeviceOptions device{.name = "nic0"};
  device.limits.region_bytes_max = 10'000;
  gantry::testing::FakeVerbs host(fabric, {device});
  RdmaOptions options;
  EXPECT_EQ((*RdmaDevices::Open(options, host))->at(0).chunk_bytes, 8192u);
  for (const uint64_t bytes : {4096U, 4097U, 1U << 20}) {
    options.chunk_bytes = bytes;
    EXPECT_EQ((*RdmaDevices::Open(options, host))->at(0).chunk_bytes, bytes / 4096 * 4096);
  }
}

TEST(RdmaDevicesTest, PacketsAreAsLargeAsThePortSaysOrElseAsTheOptionWhereThatIsLess) {
  gantry::testing::FakeFabric fabric;
  gantry::testing::FakeDeviceOptions device{.name = "nic0"};
  device.port.mtu = 1024;
  gantry::testing::FakeVerbs host(fabric, {device});
  for (const auto& [option, mtu] :
       {std::pair(0U, 1024U), {256U, 256U}, {1024U, 1024U}, {4096U, 1024U}}) {
    RdmaOptions options;
    options.mtu = option;
    const auto devices = RdmaDevices::Open(options, host);
    ASSERT_TRUE(devices) << devices.error().message;
    const auto queue = *(*devices)->at(0).device->CreateCompletionQueue(1);
    const auto pair = *(*devices)->at(0).device->CreateQueuePair(*queue, {});
    EXPECT_EQ((*devices)->AddressOf(0, *pair, (*devices)->at(0).gid).mtu, mtu) << "what peers hear";
  }
}

TEST(RdmaDevicesTest, OfThoseThatAreOfferedWhatWorksIsUsedAndNoOther) {
  gantry::testing::FakeFabric fabric;
  gantry::testing::FakeDeviceOptions down{.name = "nic1"};
  down.port.active = false;
  gantry::testing::FakeVerbs host(fabric, {{.name = "nic0"}, down, {.name = "nic2"}});
  const auto names = [&](const RdmaOptions& options) {
    std::vector<std::string> used;
    const auto devices = RdmaDevices::Open(options, host);
    for (size_t i = 0; devices && i < (*devices)->size(); ++i) {
      used.push_back((*devices)->at(i).device->name());
    }
    return used;
  };
  RdmaOptions options;
  options.offered = {"nic1", "nic2", "nic7"};
  EXPECT_EQ(names(options), std::vector<std::string>{"nic2"});
  options.devices = {"nic0"};
  EXPECT_EQ(names(options), std::vector<std::string>{"nic0"}) << "an operator's word is first";
  options.devices.clear();
  options.offered = {"nic7"};
  const auto none = RdmaDevices::Open(options, host);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ErrorCode::kPathUnavailable);
  EXPECT_NE(none.error().message.find("nic7"), std::string::npos) << none.error().message;
}

TEST(RdmaDevicesTest, AnOptionBelowAPageIsBlamedAndNoDevice) {
  gantry::testing::FakeFabric fabric;
  gantry::testing::FakeDeviceOptions device{.name = "nic0"};
  device.limits.region_bytes_max = 4095;
  gantry::testing::FakeVerbs host(fabric, {device});
  RdmaOptions options;
  const auto device_is = RdmaDevices::Open(options, host);
  ASSERT_FALSE(device_is);
  EXPECT_EQ(device_is.error().code, ErrorCode::kPathUnavailable) << "others have other ways";
  EXPECT_NE(device_is.error().message.find("nic0: the device tells"), std::string::npos)
      << device_is.error().message;
  options.chunk_bytes = 4095;
  const auto option_is = RdmaDevices::Open(options, host);
  ASSERT_FALSE(option_is);
  EXPECT_EQ(option_is.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(option_is.error().message.find("--rdma-chunk-bytes: the configured largest"), 0u)
      << option_is.error().message;
  EXPECT_EQ(option_is.error().message.find("nic0"), std::string::npos);
  options.chunk_bytes = 4096;
  EXPECT_TRUE(RdmaDevices::Open(options, host)) << "it knows better than the device";
}

}  // namespace
}  // namespace gantry::transport
