#include "lib/topology/nic_distance.h"

#include <gtest/gtest.h>

#include "tests/lib/topology/fake_sysfs.h"

namespace gantry::topology {
namespace {

class NicDistanceTest : public ::testing::Test {
 protected:
  // From one NIC to a GPU with these paths.
  NicDistance Distance(const std::string& nic, const std::string& gpu, int nic_node = -1,
                       int gpu_node = -1) {
    FakeSysfs sysfs;
    sysfs.AddNic("mlx5_0", nic, nic_node);
    sysfs.AddGpu(gpu, gpu_node);
    const PciPlace here = PlaceOf(nic.substr(nic.rfind('/') + 1), sysfs.root());
    const PciPlace there = PlaceOf(sysfs.gpus().at(0), sysfs.root());
    EXPECT_EQ(DistanceBetween(there, here), DistanceBetween(here, there)) << "either way";
    return DistanceBetween(here, there);
  }
};

TEST_F(NicDistanceTest, IsWhatThePathsShare) {
  const std::string port = "pci0000:15/0000:15:01.0";
  const std::string upstream = port + "/0000:16:00.0";
  EXPECT_EQ(Distance(upstream + "/0000:17:00.0/0000:18:00.0",  //
                     upstream + "/0000:17:01.0/0000:19:00.0"),
            NicDistance::kSameSwitch);
  EXPECT_EQ(Distance(upstream + "/0000:17:00.0/0000:18:00.0",
                     upstream + "/0000:17:01.0/0000:19:00.0/0000:1a:01.0/0000:1b:00.0"),
            NicDistance::kSeveralSwitches);
  EXPECT_EQ(Distance(port + "/0000:16:00.0", port + "/0000:16:00.1"), NicDistance::kSameRoot);
  EXPECT_EQ(Distance("pci0000:15/0000:15:01.0/0000:16:00.0",  //
                     "pci0000:15/0000:15:02.0/0000:1a:00.0"),
            NicDistance::kSameRoot);
}

TEST_F(NicDistanceTest, OfOtherHostBridgesIsThatOfTheirNodes) {
  const std::string nic = "pci0000:15/0000:15:01.0/0000:16:00.0";
  const std::string gpu = "pci0000:25/0000:25:01.0/0000:26:00.0";
  EXPECT_EQ(Distance(nic, gpu, 1, 1), NicDistance::kSameNode);
  EXPECT_EQ(Distance(nic, gpu, 0, 1), NicDistance::kOtherNode);
  EXPECT_EQ(Distance(nic, gpu, -1, 1), NicDistance::kUnknown);
  EXPECT_EQ(Distance(nic, gpu, -1, -1), NicDistance::kUnknown) << "two unknown nodes are not one";
  EXPECT_EQ(Distance("pci0000:15/0000:15:01.0", "pci0001:15/0001:15:01.0", 0, 0),
            NicDistance::kSameNode)
      << "another domain";
}

TEST_F(NicDistanceTest, ATreeBehindAPciDeviceIsOneOfItsOwn) {
  const std::string nested = "pci0000:15/0000:15:01.0/0000:16:00.0/pci10000:e0";
  EXPECT_EQ(PlaceOf("10000:e1:00.0", "/nowhere").host_bridge, "");
  EXPECT_EQ(Distance(nested + "/10000:e0:01.0/10000:e1:00.0", "pci0000:15/0000:15:02.0", 0, 0),
            NicDistance::kSameNode);
  EXPECT_EQ(Distance(nested + "/10000:e0:01.0/10000:e1:00.0", nested + "/10000:e0:02.0"),
            NicDistance::kSameRoot);
}

TEST_F(NicDistanceTest, ComparesFromNearToFar) {
  EXPECT_LT(NicDistance::kSameSwitch, NicDistance::kSeveralSwitches);
  EXPECT_LT(NicDistance::kSeveralSwitches, NicDistance::kSameRoot);
  EXPECT_LT(NicDistance::kSameRoot, NicDistance::kSameNode);
  EXPECT_LT(NicDistance::kSameNode, NicDistance::kOtherNode);
  EXPECT_LT(NicDistance::kOtherNode, NicDistance::kUnknown);
}

TEST_F(NicDistanceTest, OfWhatSysfsDoesNotKnowIsUnknown) {
  FakeSysfs sysfs;
  sysfs.AddEightGpusWithNics();
  const PciPlace gpu = PlaceOf(sysfs.gpus().at(0), sysfs.root());
  EXPECT_EQ(DistanceBetween(gpu, PlaceOf("0000:ff:00.0", sysfs.root())), NicDistance::kUnknown);
  EXPECT_EQ(DistanceBetween(gpu, PlaceOf("", sysfs.root())), NicDistance::kUnknown);
  EXPECT_EQ(DistanceBetween(gpu, PlaceOf("../../etc", sysfs.root())), NicDistance::kUnknown);
  EXPECT_EQ(DistanceBetween({}, {}), NicDistance::kUnknown);
}

TEST(PciAddressOf, TakesWhatVendorsWrite) {
  EXPECT_EQ(PciAddressOf("0000:1b:00.0"), "0000:1b:00.0");
  EXPECT_EQ(PciAddressOf("00000000:1B:00.0"), "0000:1b:00.0");
  EXPECT_EQ(PciAddressOf("00010000:E1:00.1"), "10000:e1:00.1");
  for (const char* text : {"", ":", "1b:00.0", "0000:1b:00", "0000:1b:00.00", "0000:1b:0g.0",
                           "pci0000:15", "0000:1b-00.0", "0x00:1b:00.0"}) {
    EXPECT_EQ(PciAddressOf(text), "") << text;
  }
}

TEST(PciAddressInPath, IsTheLastOne) {
  EXPECT_EQ(PciAddressInPath("/sys/devices/pci0000:00/0000:00:03.0/0000:01:00.0/virtio0"),
            "0000:01:00.0");
  EXPECT_EQ(PciAddressInPath("/sys/devices/virtual/infiniband/rxe0"), "");
}

}  // namespace
}  // namespace gantry::topology
