#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <isa-l/igzip_lib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "gantryctl/doctor.h"
#include "tests/fakes/test_folder.h"

namespace gantry::gantryctl {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kDevice[] = "sys/class/infiniband/mlx5_0/";
constexpr char kLimits8MiB[] =
    "Limit                     Soft Limit           Hard Limit           Units     \n"
    "Max open files            1024                 4096                 files     \n"
    "Max locked memory         8388608              16777216             bytes     ";

// A machine in a folder; it has nothing to begin with.
class DoctorRdma : public ::testing::Test {
 protected:
  void Write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text << "\n";
  }
  void AddDevice(const std::string& link_layer) {
    Write(std::string(kDevice) + "ports/1/state", "4: ACTIVE");
    Write(std::string(kDevice) + "ports/1/rate", "400 Gb/sec (4X NDR)");
    Write(std::string(kDevice) + "ports/1/link_layer", link_layer);
    Write("sys/class/infiniband_verbs/uverbs0/ibdev", "mlx5_0");
    Write("dev/infiniband/uverbs0", "");
    Write("proc/self/limits", "Max locked memory         unlimited            unlimited  bytes");
  }
  void AddGid(int index, const std::string& type, const std::string& gid) {
    Write(std::string(kDevice) + "ports/1/gid_attrs/types/" + std::to_string(index), type);
    Write(std::string(kDevice) + "ports/1/gids/" + std::to_string(index), gid);
  }
  void AddKernelOptions(const std::string& text) {
    Write("proc/sys/kernel/osrelease", "6.1.0-test");
    Write("boot/config-6.1.0-test", text);
  }
  void AddAccelerator() { Write("sys/bus/pci/devices/0000:1b:00.0/class", "0x030200"); }

  // The one finding about this. All are held to what holds for every finding.
  Finding About(const std::string& subject) const {
    const Findings all = ExamineRdma(root_);
    for (const Finding& each : all) {
      EXPECT_FALSE(each.said.empty()) << each.subject;
      EXPECT_EQ(each.advice.empty(), each.level == Level::kOk) << each.subject;
    }
    const auto about = [&](const Finding& each) { return each.subject == subject; };
    EXPECT_LE(std::count_if(all.begin(), all.end(), about), 1);
    const auto found = std::find_if(all.begin(), all.end(), about);
    return found == all.end() ? Finding() : *found;
  }

  const gantry::testing::TestFolder folder_;
  const std::string root_ = folder_.path() + "/";
};

TEST_F(DoctorRdma, SaysWhichPathsAreLeftWithoutADevice) {
  const Finding without_class = About("RDMA");
  EXPECT_EQ(without_class.level, Level::kOk);
  EXPECT_THAT(without_class.said, AllOf(HasSubstr("none of its drivers is loaded"),
                                        HasSubstr("ipc and shm"), HasSubstr("tcp")));
  std::filesystem::create_directories(root_ + "sys/class/infiniband");
  EXPECT_THAT(About("RDMA").said,
              AllOf(HasSubstr("network namespace"), HasSubstr("ipc and shm"), HasSubstr("tcp")));
}

TEST_F(DoctorRdma, NamesTheStateOfEveryPortWhenNoneIsActive) {
  AddDevice("InfiniBand");
  Write(std::string(kDevice) + "ports/1/state", "1: DOWN");
  Write(std::string(kDevice) + "ports/2/state", "2: INIT");
  const Finding finding = About("RDMA mlx5_0");
  EXPECT_EQ(finding.level, Level::kWarn);
  EXPECT_THAT(finding.said, HasSubstr("port 1 is DOWN, port 2 is INIT"));
}

TEST_F(DoctorRdma, NamesADeviceFileThatIsNotHere) {
  AddDevice("InfiniBand");
  EXPECT_EQ(About("RDMA mlx5_0").level, Level::kOk);
  EXPECT_THAT(About("RDMA mlx5_0").said, HasSubstr("InfiniBand, 400 Gb/sec"));
  std::filesystem::remove(root_ + "dev/infiniband/uverbs0");
  EXPECT_EQ(About("RDMA mlx5_0").level, Level::kWarn);
  EXPECT_THAT(About("RDMA mlx5_0").said, HasSubstr("/dev/infiniband/uverbs0 is not to be had"));
  std::filesystem::remove_all(root_ + "sys/class/infiniband_verbs");
  EXPECT_THAT(About("RDMA mlx5_0").advice, HasSubstr("ib_uverbs"));
}

TEST_F(DoctorRdma, ADeviceOnEthernetNeedsARoutableGidForRoceV2) {
  AddDevice("Ethernet");
  AddGid(0, "IB/RoCE v1", "0000:0000:0000:0000:0000:ffff:0a63:0001");
  AddGid(1, "RoCE v2", "0000:0000:0000:0000:0000:0000:0000:0000");
  EXPECT_EQ(About("RDMA mlx5_0").level, Level::kWarn);
  EXPECT_THAT(About("RDMA mlx5_0").said, HasSubstr("no GID for RoCE v2"));
  AddGid(2, "RoCE v2", "fe80:0000:0000:0000:0042:a1ff:fe00:0001");
  EXPECT_EQ(About("RDMA mlx5_0").level, Level::kWarn);
  EXPECT_THAT(About("RDMA mlx5_0").said, HasSubstr("link-local"));
  AddGid(3, "RoCE v2", "0000:0000:0000:0000:0000:ffff:0a63:0001");
  EXPECT_EQ(About("RDMA mlx5_0").level, Level::kOk);
  EXPECT_THAT(About("RDMA mlx5_0").said, HasSubstr("::ffff:10.99.0.1"));
}

TEST_F(DoctorRdma, LockedMemoryIsLimitedOnlyWhereThereAreDevices) {
  Write("proc/self/limits", kLimits8MiB);
  EXPECT_EQ(About("limit memlock").level, Level::kOk);
  EXPECT_THAT(About("limit memlock").said, HasSubstr("8 MiB of locked memory (matters to RDMA"));
  AddDevice("InfiniBand");
  EXPECT_EQ(About("limit memlock").level, Level::kOk);
  EXPECT_THAT(About("limit memlock").said, HasSubstr("unlimited"));
  Write("proc/self/limits", kLimits8MiB);
  const Finding limited = About("limit memlock");
  EXPECT_EQ(limited.level, Level::kWarn);
  EXPECT_THAT(limited.said, HasSubstr("8 MiB of locked memory: a sidecar"));
  for (const char* way :
       {"--ulimit memlock=-1", "LimitMEMLOCK=infinity", "containerd", "systemd", "Kubernetes"}) {
    EXPECT_THAT(limited.advice, HasSubstr(way));
  }
}

TEST_F(DoctorRdma, ALimitThatDoesNotBindIsNoWarning) {
  AddDevice("InfiniBand");
  Write("proc/self/limits", kLimits8MiB);
  Write("proc/self/status", "Name:\tgantryctl\nCapEff:\t00000000a80425fb");
  EXPECT_EQ(About("limit memlock").level, Level::kWarn);
  Write("proc/self/status", "Name:\tgantryctl\nCapEff:\t0000000000004000");
  EXPECT_EQ(About("limit memlock").level, Level::kOk);
  EXPECT_THAT(About("limit memlock").said, HasSubstr("CAP_IPC_LOCK"));
  std::filesystem::remove(root_ + "proc/self/status");
  Write("proc/meminfo", "MemTotal:           8193 kB");
  EXPECT_EQ(About("limit memlock").level, Level::kWarn);
  Write("proc/meminfo", "MemTotal:           8192 kB");
  EXPECT_EQ(About("limit memlock").level, Level::kOk);
}

TEST_F(DoctorRdma, AnUnreadableLimitIsSaidToBeUnknown) {
  EXPECT_EQ(About("limit memlock").level, Level::kOk);
  AddDevice("InfiniBand");
  std::filesystem::remove(root_ + "proc/self/limits");
  EXPECT_EQ(About("limit memlock").level, Level::kWarn);
  EXPECT_THAT(About("limit memlock").said, HasSubstr("unknown"));
}

TEST_F(DoctorRdma, DmaBufIsAQuestionOnlyBetweenDevicesOfBothKinds) {
  AddDevice("InfiniBand");
  EXPECT_EQ(About("dma-buf").said, "");
  AddAccelerator();
  EXPECT_THAT(About("dma-buf").said, HasSubstr("unknown"));
  std::filesystem::remove_all(root_ + "sys/class/infiniband");
  EXPECT_EQ(About("dma-buf").said, "");
}

TEST_F(DoctorRdma, ReadsTheKernelsOptions) {
  AddDevice("InfiniBand");
  AddAccelerator();
  AddKernelOptions("CONFIG_DMABUF_MOVE_NOTIFY=y\nCONFIG_PCI_P2PDMA=y");
  EXPECT_EQ(About("dma-buf").level, Level::kOk);
  EXPECT_THAT(About("dma-buf").said,
              AllOf(HasSubstr("/boot/config-6.1.0-test"), Not(HasSubstr("unknown"))));
  AddKernelOptions("# CONFIG_DMABUF_MOVE_NOTIFY is not set\nCONFIG_PCI_P2PDMA=y");
  EXPECT_EQ(About("dma-buf").level, Level::kWarn);
  EXPECT_THAT(About("dma-buf").said,
              AllOf(HasSubstr("without CONFIG_DMABUF_MOVE_NOTIFY ("), Not(HasSubstr("P2PDMA"))));
  // Newer kernels have one of them always, and mention it no more.
  AddKernelOptions("CONFIG_PCI_P2PDMA=y\nCONFIG_DMABUF_MOVE_NOTIFY_TEST=y");
  EXPECT_EQ(About("dma-buf").level, Level::kOk);
  EXPECT_THAT(About("dma-buf").said, HasSubstr("does not mention CONFIG_DMABUF_MOVE_NOTIFY"));
}

TEST_F(DoctorRdma, ReadsTheZippedOptionsOfTheRunningKernelFirst) {
  AddDevice("InfiniBand");
  AddAccelerator();
  AddKernelOptions("CONFIG_DMABUF_MOVE_NOTIFY=y\nCONFIG_PCI_P2PDMA=y");
  std::string text = "CONFIG_DMABUF_MOVE_NOTIFY=y\n# CONFIG_PCI_P2PDMA is not set\n";
  std::string zipped(4096, '\0');
  isal_zstream stream{};
  isal_deflate_stateless_init(&stream);
  stream.gzip_flag = IGZIP_GZIP;
  stream.end_of_stream = 1;
  stream.next_in = reinterpret_cast<uint8_t*>(text.data());
  stream.avail_in = static_cast<uint32_t>(text.size());
  stream.next_out = reinterpret_cast<uint8_t*>(zipped.data());
  stream.avail_out = static_cast<uint32_t>(zipped.size());
  ASSERT_EQ(isal_deflate_stateless(&stream), COMP_OK);
  zipped.resize(stream.total_out);
  std::ofstream(root_ + "proc/config.gz", std::ios::binary) << zipped;
  EXPECT_EQ(About("dma-buf").level, Level::kWarn);
  EXPECT_THAT(About("dma-buf").said, HasSubstr("CONFIG_PCI_P2PDMA (/proc/config.gz)"));
  // What is cut off is not believed.
  std::ofstream(root_ + "proc/config.gz", std::ios::binary) << zipped.substr(0, zipped.size() / 2);
  EXPECT_THAT(About("dma-buf").said, HasSubstr("/boot/config-6.1.0-test"));
}

TEST_F(DoctorRdma, WhatADeviceInUseDoesNotReachIsAWarningWhereThereAreGpus) {
  nlohmann::json status = nlohmann::json::parse(
      R"({"rdma_devices":[{"name":"mlx5_0","takes_dma_bufs":true},
                          {"name":"rxe0","takes_dma_bufs":false,"no_dma_buf_because":"not rxe0"}]})");
  Findings findings = ExamineRdmaInUse(status);
  ASSERT_EQ(findings.size(), 2u);
  EXPECT_EQ(findings[0].subject, "RDMA mlx5_0 and GPUs");
  EXPECT_EQ(findings[0].level, Level::kOk);
  EXPECT_EQ(findings[1].level, Level::kOk);
  EXPECT_EQ(findings[1].said, "not rxe0");
  status["gpus"] = {{{"uuid", "GPU-1"}}};
  findings = ExamineRdmaInUse(status);
  EXPECT_EQ(findings[0].level, Level::kOk);
  EXPECT_EQ(findings[1].level, Level::kWarn);
  EXPECT_EQ(findings[1].said, "not rxe0: memory of GPUs bounces through the host");
  EXPECT_THAT(findings[1].advice, HasSubstr("--rdma-devices"));
  EXPECT_TRUE(ExamineRdmaInUse(nlohmann::json::parse(R"({"gpus":[{}]})")).empty());
}

}  // namespace
}  // namespace gantry::gantryctl
