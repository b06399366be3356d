#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "lib/gpu/all_cluster_gpus.h"
#include "lib/gpu/cuda/nvidia_cluster_gpus.h"
#include "lib/gpu/hip/amd_cluster_gpus.h"
#include "tests/fakes/test_folder.h"

namespace gantry::gpu {
namespace {

namespace fs = std::filesystem;

class ClusterGpusTest : public ::testing::Test {
 protected:
  void Write(const std::string& path, const std::string& text) {
    fs::create_directories(fs::path(folder_.File(path)).parent_path());
    std::ofstream(folder_.File(path)) << text << "\n";
  }

  testing::TestFolder folder_;
};

TEST_F(ClusterGpusTest, NvidiaGpusAreReadFromTheDriversFiles) {
  // As driver 580.159 wrote it on an H100.
  Write("proc/driver/nvidia/gpus/0000:00:06.0/information",
        "Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   \t\t 41\n"
        "GPU UUID: \t GPU-d650891e-2648-ebc2-8c40-a0182d0d1e85\nBus Type: \t PCIe\n"
        "Bus Location: \t 0000:00:06.0\nDevice Minor: \t 3\nGPU Excluded:\t No");
  Write("proc/driver/nvidia/gpus/0000:00:05.0/information", "Model: \t half a file");
  const auto gpus = NvidiaClusterGpus()->List(folder_.path());
  ASSERT_EQ(gpus.size(), 1U);
  EXPECT_EQ(gpus[0].id, "GPU-d650891e-2648-ebc2-8c40-a0182d0d1e85");
  EXPECT_EQ(gpus[0].pci_address, "0000:00:06.0");
  EXPECT_EQ(gpus[0].device_file, "/dev/nvidia3");
}

TEST_F(ClusterGpusTest, NvidiaIdsOfReplicasAndSlices) {
  const auto nvidia = NvidiaClusterGpus();
  EXPECT_EQ(*nvidia->GpuIdOf("GPU-1"), "GPU-1");
  EXPECT_EQ(*nvidia->GpuIdOf("GPU-1::7"), "GPU-1");
  EXPECT_EQ(nvidia->GpuIdOf("MIG-GPU-1/2/0").error().code, ErrorCode::kNotExportable);
  EXPECT_TRUE(nvidia->OwnsResource("nvidia.com/gpu"));
  EXPECT_TRUE(nvidia->OwnsResource("nvidia.com/mig-1g.10gb"));
  EXPECT_FALSE(nvidia->OwnsResource("nvidia.com/hostdev"));
  EXPECT_FALSE(nvidia->OwnsResource("amd.com/gpu"));
}

TEST_F(ClusterGpusTest, NvidiaIdsOfOtherPlugins) {
  const auto nvidia = NvidiaClusterGpus();
  const std::string uuid = "GPU-d650891e-2648-ebc2-8c40-a0182d0d1e85";
  // GKE's plugin.
  EXPECT_EQ(*nvidia->GpuIdOf("nvidia3"), "nvidia3");
  EXPECT_EQ(*nvidia->GpuIdOf("nvidia12/vgpu7"), "nvidia12");
  EXPECT_EQ(nvidia->GpuIdOf("nvidia0/gi1").error().code, ErrorCode::kNotExportable);
  EXPECT_EQ(nvidia->GpuIdOf("nvidia0/gi1/vgpu0").error().code, ErrorCode::kNotExportable);
  for (const std::string& id : {uuid, std::string("nvidia0"), std::string("nvidia12")}) {
    EXPECT_TRUE(nvidia->NamesGpu(id)) << id;
  }
  // HAMi's shares are on the GPU that an annotation names. Indices count what a plugin counts.
  for (const std::string& id : {uuid + "-2", uuid + "[0-1]", "0" + uuid, std::string("GPU-1"),
                                std::string("0"), std::string("0:1"), std::string("nvidiactl"),
                                std::string("nvidia"), std::string("all"), std::string()}) {
    EXPECT_FALSE(nvidia->NamesGpu(id)) << id;
  }
  EXPECT_TRUE(nvidia->IsGpuFile("/dev/nvidia0"));
  EXPECT_FALSE(nvidia->IsGpuFile("/dev/nvidia-uvm"));
  EXPECT_FALSE(nvidia->IsGpuFile("/dev/nvidiactl"));
}

TEST_F(ClusterGpusTest, AmdIdsAreAddressesAndPartitions) {
  const auto amd = AmdClusterGpus();
  EXPECT_TRUE(amd->NamesGpu("0000:c1:00.0"));
  EXPECT_TRUE(amd->NamesGpu("amdgpu_xcp_3"));
  for (const char* const id : {"0", "0000:c1:00.0-2", "0000-c1-00-0", "card0", ""}) {
    EXPECT_FALSE(amd->NamesGpu(id)) << id;
  }
  EXPECT_TRUE(amd->IsGpuFile("/dev/dri/renderD128"));
  EXPECT_FALSE(amd->IsGpuFile("/dev/dri/card0"));
  EXPECT_FALSE(amd->IsGpuFile("/dev/kfd"));
}

TEST_F(ClusterGpusTest, AmdGpusAndPartitionsAreReadFromSysfs) {
  Write("sys/bus/pci/devices/0000:c1:00.0/vendor", "0x1002");
  Write("sys/bus/pci/devices/0000:c1:00.0/drm/renderD128/dev", "226:128");
  Write("sys/bus/pci/devices/0000:c2:00.0/vendor", "0x8086");
  Write("sys/bus/pci/devices/0000:c2:00.0/drm/renderD130/dev", "226:130");
  Write("sys/devices/platform/amdgpu_xcp_3/drm/renderD131/dev", "226:131");
  const auto amd = AmdClusterGpus();
  const auto gpus = amd->List(folder_.path());
  ASSERT_EQ(gpus.size(), 2U);
  EXPECT_EQ(gpus[0].id, "0000:c1:00.0");
  EXPECT_EQ(gpus[0].device_file, "/dev/dri/renderD128");
  EXPECT_EQ(gpus[1].id, "amdgpu_xcp_3");
  EXPECT_EQ(gpus[1].device_file, "/dev/dri/renderD131");
  EXPECT_TRUE(amd->OwnsResource("amd.com/gpu"));
  EXPECT_TRUE(amd->OwnsResource("amd.com/cpx_nps4"));
  EXPECT_FALSE(amd->OwnsResource("amd.com/xilinx_u30"));
  EXPECT_THAT(amd->SharedDeviceFiles(), ::testing::ElementsAre("/dev/kfd"));
}

TEST_F(ClusterGpusTest, AMachineWithoutGpusHasNone) {
  for (const auto& vendor : AllClusterGpus()) EXPECT_TRUE(vendor->List(folder_.path()).empty());
}

}  // namespace
}  // namespace gantry::gpu
