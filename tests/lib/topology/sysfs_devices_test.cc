#include "lib/topology/sysfs_devices.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace gantry::topology {
namespace {

class SysfsDevices : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::remove_all(root_); }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root_ + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text << "\n";
  }

  // Tests of one binary run side by side.
  const std::string root_ =
      testing::TempDir() + "sysfs_devices-" + std::to_string(::getpid()) + "/";
};

TEST_F(SysfsDevices, FindsNothingWhereThereIsNothing) {
  EXPECT_TRUE(ListRdmaDevices(root_).empty());
  EXPECT_TRUE(ListPciAccelerators(root_).empty());
}

TEST_F(SysfsDevices, PrefersTheActivePortAndFindsTheDeviceFile) {
  Write("sys/class/infiniband/mlx5_1/ports/1/state", "4: ACTIVE");
  Write("sys/class/infiniband/mlx5_1/ports/1/rate", "400 Gb/sec (4X NDR)");
  Write("sys/class/infiniband/mlx5_1/ports/1/link_layer", "InfiniBand");
  Write("sys/class/infiniband/mlx5_1/ports/2/state", "1: DOWN");
  Write("sys/class/infiniband/mlx5_0/ports/1/state", "1: DOWN");
  Write("sys/class/infiniband_verbs/uverbs3/ibdev", "mlx5_1");
  const auto devices = ListRdmaDevices(root_);
  ASSERT_EQ(devices.size(), 2u);
  EXPECT_EQ(devices[0].name, "mlx5_0");
  EXPECT_FALSE(devices[0].active);
  EXPECT_EQ(devices[0].device_file, "");
  EXPECT_EQ(devices[1].name, "mlx5_1");
  EXPECT_TRUE(devices[1].active);
  EXPECT_EQ(devices[1].rate, "400 Gb/sec (4X NDR)");
  EXPECT_EQ(devices[1].link_layer, "InfiniBand");
  EXPECT_EQ(devices[1].device_file, "/dev/infiniband/uverbs3");
}

TEST_F(SysfsDevices, TellsAcceleratorsFromTheBoardsDisplay) {
  Write("sys/bus/pci/devices/0000:03:00.0/class", "0x030000");  // VGA
  Write("sys/bus/pci/devices/0000:1b:00.0/class", "0x030200");
  Write("sys/bus/pci/devices/0000:1b:00.0/vendor", "0x1234");
  Write("sys/bus/pci/devices/0000:1b:00.0/numa_node", "1");
  Write("sys/bus/pci/devices/0000:45:00.0/class", "0x120000");
  const auto accelerators = ListPciAccelerators(root_);
  ASSERT_EQ(accelerators.size(), 2u);
  EXPECT_EQ(accelerators[0].address, "0000:1b:00.0");
  EXPECT_EQ(accelerators[0].vendor_id, "0x1234");
  EXPECT_EQ(accelerators[0].numa_node, 1);
  EXPECT_EQ(accelerators[1].numa_node, -1);
}

}  // namespace
}  // namespace gantry::topology
