#include "lib/topology/nic_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "tests/lib/topology/fake_sysfs.h"

namespace gantry::topology {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

class NicChoiceTest : public ::testing::Test {
 protected:
  NicChooser Chooser(NicRules rules = {}) const {
    return NicChooser(ListRdmaDevices(sysfs_.root()), sysfs_.gpus(), std::move(rules),
                      sysfs_.root());
  }
  const std::string& gpu(size_t index) const { return sysfs_.gpus().at(index); }

  FakeSysfs sysfs_;
};

std::string Nic(size_t index) { return "mlx5_" + std::to_string(index); }

TEST_F(NicChoiceTest, EachOfEightGpusHasTheNicBehindItsSwitch) {
  sysfs_.AddEightGpusWithNics();
  for (size_t i = 0; i < 8; ++i) {
    const auto choice = Chooser().ForGpu(gpu(i));
    ASSERT_TRUE(choice) << choice.error().message;
    EXPECT_THAT(choice->names, ElementsAre(Nic(i)));
    EXPECT_EQ(choice->distance, NicDistance::kSameSwitch);
    EXPECT_EQ(choice->reason, "GPU " + gpu(i) + ": 1 of 10 NICs, behind the same PCI switch");
  }
}

TEST_F(NicChoiceTest, HostMemoryHasAllNicsOfItsNode) {
  sysfs_.AddEightGpusWithNics();
  EXPECT_THAT(Chooser().ForHostMemory(0)->names,
              UnorderedElementsAre("mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3", "mlx5_8"));
  EXPECT_THAT(Chooser().ForHostMemory(1)->names,
              UnorderedElementsAre("mlx5_4", "mlx5_5", "mlx5_6", "mlx5_7", "mlx5_9"));
  EXPECT_EQ(Chooser().ForHostMemory(1)->distance, NicDistance::kSameNode);
  EXPECT_EQ(Chooser().ForHostMemory(-1)->names.size(), 10U);
  EXPECT_EQ(Chooser().ForHostMemory(-1)->distance, NicDistance::kUnknown);
}

TEST_F(NicChoiceTest, TwoGpusBehindASwitchHaveBothItsNicsAndBeginWithDifferentOnes) {
  sysfs_.AddPairsBehindSwitches();
  for (size_t i = 0; i < 8; i += 2) {
    EXPECT_THAT(Chooser().ForGpu(gpu(i))->names, ElementsAre(Nic(i), Nic(i + 1)));
    EXPECT_THAT(Chooser().ForGpu(gpu(i + 1))->names, ElementsAre(Nic(i + 1), Nic(i)));
  }
}

TEST_F(NicChoiceTest, OnOneBusEveryGpuHasAllNicsAndItsOwnFirst) {
  sysfs_.AddFlatGuest(8, 8);
  std::set<std::string> first;
  for (size_t i = 0; i < 8; ++i) {
    const auto choice = Chooser().ForGpu(gpu(i));
    EXPECT_EQ(choice->distance, NicDistance::kSameRoot);
    EXPECT_EQ(choice->names.size(), 8U);
    for (size_t k = 0; k < 8; ++k) EXPECT_EQ(choice->names[k], Nic((i + k) % 8));
    first.insert(choice->names.front());
  }
  EXPECT_EQ(first.size(), 8U);
}

TEST_F(NicChoiceTest, GpusWithOtherNicsDoNotCountWhereAGpuBegins) {
  sysfs_.AddGpu("pci0000:00/0000:00:01.0", 0);
  sysfs_.AddNic("mlx5_7", "pci0000:00/0000:00:02.0", 0);
  for (const char* address : {"0000:80:01.0", "0000:80:02.0"}) {
    sysfs_.AddGpu(std::string("pci0000:80/") + address, 1);
  }
  sysfs_.AddNic("mlx5_0", "pci0000:80/0000:80:03.0", 1);
  sysfs_.AddNic("mlx5_1", "pci0000:80/0000:80:04.0", 1);
  EXPECT_THAT(Chooser().ForGpu(gpu(1))->names, ElementsAre("mlx5_0", "mlx5_1"));
  EXPECT_THAT(Chooser().ForGpu(gpu(2))->names, ElementsAre("mlx5_1", "mlx5_0"));
}

TEST_F(NicChoiceTest, FewGpusBeginFarApart) {
  sysfs_.AddFlatGuest(4, 8);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(Chooser().ForGpu(gpu(i))->names[0], Nic(2 * i));
}

TEST_F(NicChoiceTest, ADeviceOfNoPciBusMayHaveANode) {
  std::vector<RdmaDevice> nics(2);
  for (int i = 0; i < 2; ++i) {
    nics[i].name = "hns_" + std::to_string(i);
    nics[i].numa_node = i;
    nics[i].ports.push_back({1, "ACTIVE", "", "", ""});
  }
  const NicChooser chooser(nics, {}, {}, sysfs_.root());
  EXPECT_THAT(chooser.ForHostMemory(1)->names, ElementsAre("hns_1"));
}

TEST_F(NicChoiceTest, GpusAreSpreadEvenlyOverOtherNumbersOfNics) {
  for (const auto& [gpus, nics] : {std::pair{4, 8}, {8, 4}, {3, 8}, {8, 3}, {1, 5}, {7, 1}}) {
    SCOPED_TRACE(std::to_string(gpus) + " GPUs, " + std::to_string(nics) + " NICs");
    FakeSysfs sysfs;
    sysfs.AddFlatGuest(gpus, nics);
    const NicChooser chooser(ListRdmaDevices(sysfs.root()), sysfs.gpus(), {}, sysfs.root());
    std::map<std::string, int> first;
    for (const std::string& gpu : sysfs.gpus()) ++first[chooser.ForGpu(gpu)->names.front()];
    EXPECT_EQ(first.size(), static_cast<size_t>(std::min(gpus, nics)));
    for (const auto& [nic, times] : first) EXPECT_LE(times, (gpus + nics - 1) / nics) << nic;
  }
}

TEST_F(NicChoiceTest, DoesNotDependOnTheOrderInWhichDevicesAreListed) {
  sysfs_.AddFlatGuest(6, 12);
  std::mt19937 random(7);
  auto nics = ListRdmaDevices(sysfs_.root());
  auto gpus = sysfs_.gpus();
  const NicChooser chooser = Chooser();
  for (int i = 0; i < 20; ++i) {
    std::shuffle(nics.begin(), nics.end(), random);
    std::shuffle(gpus.begin(), gpus.end(), random);
    const NicChooser shuffled(nics, gpus, {}, sysfs_.root());
    for (const std::string& gpu : gpus) {
      EXPECT_EQ(shuffled.ForGpu(gpu)->names, chooser.ForGpu(gpu)->names);
    }
  }
}

TEST_F(NicChoiceTest, ASoftDeviceServesEverything) {
  sysfs_.AddSoftNic("rxe0", "eth0");
  sysfs_.AddGpu("pci0000:00/0000:00:03.0", 0);
  EXPECT_THAT(Chooser().ForGpu(gpu(0))->names, ElementsAre("rxe0"));
  EXPECT_THAT(Chooser().ForHostMemory(0)->names, ElementsAre("rxe0"));
  EXPECT_EQ(Chooser().ForHostMemory(0)->distance, NicDistance::kUnknown);
  // A NIC that is somewhere comes before one that is nowhere.
  sysfs_.AddNic("mlx5_0", "pci0000:80/0000:80:01.0", 1);
  EXPECT_THAT(Chooser().ForGpu(gpu(0))->names, ElementsAre("mlx5_0"));
  EXPECT_EQ(Chooser().ForGpu(gpu(0))->distance, NicDistance::kOtherNode);
}

TEST_F(NicChoiceTest, AGpuThatIsNotOnTheListGetsItsNicsToo) {
  sysfs_.AddPairsBehindSwitches();
  const NicChooser chooser(ListRdmaDevices(sysfs_.root()), {}, {}, sysfs_.root());
  EXPECT_THAT(chooser.ForGpu(gpu(3))->names, UnorderedElementsAre("mlx5_2", "mlx5_3"));
  EXPECT_EQ(chooser.ForGpu("0000:ff:00.0")->names.size(), 8U);
  EXPECT_EQ(chooser.ForGpu("no address")->distance, NicDistance::kUnknown);
}

TEST_F(NicChoiceTest, APortThatIsDownMakesRoomForTheNextNearest) {
  const std::string upstream = "pci0000:10/0000:10:01.0/0000:11:00.0";
  sysfs_.AddGpu(upstream + "/0000:12:00.0/0000:13:00.0", 0);
  sysfs_.AddNic("mlx5_0", upstream + "/0000:12:01.0/0000:14:00.0", 0, "1: DOWN");
  sysfs_.AddNic("mlx5_1", "pci0000:20/0000:20:01.0", 0);
  sysfs_.AddNic("mlx5_2", "pci0000:80/0000:80:01.0", 1);
  EXPECT_THAT(Chooser().ForGpu(gpu(0))->names, ElementsAre("mlx5_1"));
}

TEST_F(NicChoiceTest, AnOperatorsListOverrulesDistances) {
  sysfs_.AddEightGpusWithNics();
  const auto choice = Chooser({.use = {"mlx5_9", "mlx5_0"}}).ForGpu(gpu(0));
  ASSERT_TRUE(choice);
  EXPECT_THAT(choice->names, ElementsAre("mlx5_9", "mlx5_0"));
  EXPECT_EQ(choice->distance, NicDistance::kOtherNode) << "that of the farthest";
  EXPECT_THAT(choice->reason, HasSubstr("2 NICs as configured, the farthest at another NUMA node"));
}

TEST_F(NicChoiceTest, WhatIsExcludedIsNeverChosen) {
  sysfs_.AddEightGpusWithNics();
  const NicChooser chooser = Chooser({.exclude = {"mlx5_8", "mlx5_0"}});
  EXPECT_THAT(chooser.ForHostMemory(0)->names, UnorderedElementsAre("mlx5_1", "mlx5_2", "mlx5_3"));
  EXPECT_THAT(chooser.ForGpu(gpu(0))->names, UnorderedElementsAre("mlx5_1", "mlx5_2", "mlx5_3"));
  EXPECT_THAT(chooser.ForGpu(gpu(1))->names, ElementsAre("mlx5_1"));
}

TEST_F(NicChoiceTest, SaysWhatIsMissing) {
  const auto none = Chooser().ForHostMemory(0);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ErrorCode::kPathUnavailable);
  EXPECT_THAT(none.error().message, HasSubstr("no RDMA device"));

  sysfs_.AddNic("mlx5_0", "pci0000:10/0000:10:01.0", 0, "1: DOWN");
  EXPECT_THAT(Chooser().ForHostMemory(0).error().message, HasSubstr("active port: mlx5_0"));
  EXPECT_THAT(Chooser({.use = {"mlx5_0"}}).ForHostMemory(0).error().message,
              HasSubstr("no port of the configured NIC mlx5_0"));

  sysfs_.AddNic("mlx5_1", "pci0000:10/0000:10:02.0", 0);
  EXPECT_THAT(Chooser({.exclude = {"mlx5_1"}}).ForHostMemory(0).error().message,
              HasSubstr("excluded: mlx5_1"));
  const auto unknown = Chooser({.use = {"mlx5_1", "mlx5_7"}}).ForHostMemory(0);
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(unknown.error().message, HasSubstr("mlx5_7"));
  EXPECT_THAT(unknown.error().hint, HasSubstr("mlx5_1"));
}

}  // namespace
}  // namespace gantry::topology
