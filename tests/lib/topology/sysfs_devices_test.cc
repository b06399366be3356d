#include "lib/topology/sysfs_devices.h"

#include <gtest/gtest.h>

#include "tests/lib/topology/fake_sysfs.h"

namespace gantry::topology {
namespace {

class SysfsDevices : public ::testing::Test {
 protected:
  void Write(const std::string& path, const std::string& text) { sysfs_.Write(path, text); }

  FakeSysfs sysfs_;
  const std::string root_ = sysfs_.root();
};

TEST_F(SysfsDevices, FindsNothingWhereThereIsNothing) {
  EXPECT_TRUE(ListRdmaDevices(root_).empty());
  EXPECT_TRUE(ListPciAccelerators(root_).empty());
}

TEST_F(SysfsDevices, FindsTheActivePortAndTheDeviceFile) {
  Write("sys/class/infiniband/mlx5_1/ports/1/state", "1: DOWN");
  Write("sys/class/infiniband/mlx5_1/ports/2/state", "4: ACTIVE");
  Write("sys/class/infiniband/mlx5_1/ports/2/rate", "400 Gb/sec (4X NDR)");
  Write("sys/class/infiniband/mlx5_1/ports/2/link_layer", "InfiniBand");
  Write("sys/class/infiniband/mlx5_0/ports/1/state", "2: INIT");
  Write("sys/class/infiniband_verbs/uverbs3/ibdev", "mlx5_1");
  const auto devices = ListRdmaDevices(root_);
  ASSERT_EQ(devices.size(), 2u);
  EXPECT_EQ(devices[0].name, "mlx5_0");
  EXPECT_EQ(devices[0].ActivePort(), nullptr);
  EXPECT_EQ(devices[0].ports.at(0).state, "INIT");
  EXPECT_EQ(devices[0].device_file, "");
  EXPECT_EQ(devices[1].name, "mlx5_1");
  ASSERT_EQ(devices[1].ports.size(), 2u);
  EXPECT_EQ(devices[1].ports[0].state, "DOWN");
  const RdmaPort* port = devices[1].ActivePort();
  ASSERT_NE(port, nullptr);
  EXPECT_EQ(port->number, 2);
  EXPECT_EQ(port->rate, "400 Gb/sec (4X NDR)");
  EXPECT_EQ(port->link_layer, "InfiniBand");
  EXPECT_EQ(devices[1].device_file, "/dev/infiniband/uverbs3");
}

TEST_F(SysfsDevices, TellsWhereOnThePciBusANicIs) {
  sysfs_.AddNic("mlx5_0", "pci0000:15/0000:15:01.0/0000:18:00.0", 1);
  // An RDMA device of what a guest's device is for.
  sysfs_.AddNic("rxe1", "pci0000:00/0000:00:03.0", 0, "4: ACTIVE", "virtio0");
  const auto devices = ListRdmaDevices(root_);
  ASSERT_EQ(devices.size(), 2u);
  EXPECT_EQ(devices[0].pci_address, "0000:18:00.0");
  EXPECT_EQ(devices[0].numa_node, 1);
  EXPECT_EQ(devices[1].pci_address, "0000:00:03.0");
  EXPECT_EQ(devices[1].numa_node, 0);
}

TEST_F(SysfsDevices, ASoftDeviceIsOnNoBus) {
  sysfs_.AddSoftNic("rxe0", "eth0");
  const auto devices = ListRdmaDevices(root_);
  ASSERT_EQ(devices.size(), 1u);
  EXPECT_EQ(devices[0].pci_address, "");
  EXPECT_EQ(devices[0].numa_node, -1);
  ASSERT_NE(devices[0].ActivePort(), nullptr);
  EXPECT_EQ(devices[0].ActivePort()->link_layer, "Ethernet");
  EXPECT_EQ(devices[0].ActivePort()->netdev, "eth0");
}

TEST_F(SysfsDevices, APortsInterfaceIsThatOfItsGidsOrOfItsNumber) {
  sysfs_.AddNic("mlx5_0", "pci0000:15/0000:18:00.0", 0);
  const std::string folder = "sys/devices/pci0000:15/0000:18:00.0/";
  Write(folder + "infiniband/mlx5_0/ports/2/state", "4: ACTIVE");
  Write(folder + "net/ens1np0/dev_port", "0");
  Write(folder + "net/ens1np1/dev_port", "1");
  auto devices = ListRdmaDevices(root_);
  ASSERT_EQ(devices.at(0).ports.size(), 2u);
  EXPECT_EQ(devices[0].ports[0].netdev, "ens1np0");
  EXPECT_EQ(devices[0].ports[1].netdev, "ens1np1");
  Write(folder + "infiniband/mlx5_0/ports/2/gid_attrs/ndevs/0", "bond0");
  EXPECT_EQ(ListRdmaDevices(root_)[0].ports[1].netdev, "bond0");
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
