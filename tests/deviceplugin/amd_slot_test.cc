// AMD's GPUs in slots: /dev/kfd and the render nodes of the siblings' GPUs, and nobody else's.
#include <fstream>

#include "deviceplugin/cdi/cdi_specs.h"
#include "deviceplugin/slot_files.h"
#include "tests/deviceplugin/plugin_fixture.h"

namespace gantry::deviceplugin {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

constexpr char kAmdResource[] = "amd.com/gpu";
constexpr int kFirstRenderNode = 128;

class AmdSlotTest : public PluginTest {
 protected:
  AmdSlotTest() {
    sysfs_.AddEightGpusWithNics();
    for (size_t i = 0; i < sysfs_.gpus().size(); ++i) {
      const std::string device = "sys/bus/pci/devices/" + sysfs_.gpus()[i];
      sysfs_.Write(device + "/vendor", "0x1002");
      AddRenderNode(device, kFirstRenderNode + static_cast<int>(i));
      sysfs_.Write(device + "/drm/card" + std::to_string(i) + "/dev", "226:" + std::to_string(i));
    }
    for (int i = 0; i < 10; ++i) {
      const std::string number = std::to_string(i);
      sysfs_.Write("sys/class/infiniband_verbs/uverbs" + number + "/ibdev", "mlx5_" + number);
    }
    sysfs_.Write("sys/class/misc/rdma_cm/abi_version", "6");
    config_.peer_gpu_visibility = "none";
  }

  void AddRenderNode(const std::string& device, int number) {
    const std::string node = std::to_string(number);
    sysfs_.Write(device + "/drm/renderD" + node + "/dev", "226:" + node);
  }
  static std::string RenderNode(int gpu) {
    return "/dev/dri/renderD" + std::to_string(kFirstRenderNode + gpu);
  }
  // Its device plugin names GPUs by their addresses.
  FakePod AmdPod(const std::string& name, const std::vector<int>& gpus) const {
    FakePod pod = InferencePod("team", name, {});
    for (const int gpu : gpus) {
      pod.containers[1].given[kAmdResource].push_back(sysfs_.gpus()[static_cast<size_t>(gpu)]);
    }
    return pod;
  }
  // Of GPUs, by the spec that the runtime reads.
  static std::vector<std::string> GpuFiles(const ContainerEdits& edits) {
    std::vector<std::string> files;
    for (const std::string& file : edits.DeviceFiles()) {
      if (!file.starts_with("/dev/infiniband/")) files.push_back(file);
    }
    return files;
  }
};

TEST_F(AmdSlotTest, ASidecarGetsKfdAndTheRenderNodesOfItsSiblings) {
  StartAll();
  Admit(AmdPod("one", {0}));
  Admit(AmdPod("two", {3, 5}));
  const ContainerEdits one = Start("team", "one");
  const ContainerEdits two = Start("team", "two");
  EXPECT_THAT(GpuFiles(one), UnorderedElementsAre("/dev/kfd", RenderNode(0)));
  EXPECT_THAT(GpuFiles(two), UnorderedElementsAre("/dev/kfd", RenderNode(3), RenderNode(5)));
  EXPECT_EQ(one.Variable("GANTRY_SLOT_GPUS"), sysfs_.gpus()[0]);
  EXPECT_EQ(two.Variable("GANTRY_SLOT_GPUS"), sysfs_.gpus()[3] + "," + sysfs_.gpus()[5]);
  EXPECT_EQ(two.Variable("GANTRY_SLOT_PEER_GPUS"), "");
  EXPECT_EQ(two.Variable("GANTRY_SLOT_RDMA_DEVICES"), "mlx5_3,mlx5_5");
  EXPECT_EQ(two.Variable("NVIDIA_VISIBLE_DEVICES"), "") << "another vendor's runtime is asked";
}

TEST_F(AmdSlotTest, ARestartedContainerGetsTheSameOnes) {
  StartAll();
  Admit(AmdPod("one", {6}));
  const ContainerEdits before = Start("team", "one");
  EndPlugin();
  StartPlugin();
  AwaitSlots(4);
  EXPECT_EQ(Start("team", "one").json(), before.json());
}

TEST_F(AmdSlotTest, PartitionsAreGpusOfTheirOwn) {
  AddRenderNode("sys/devices/platform/amdgpu_xcp_3", 140);
  AddRenderNode("sys/devices/platform/amdgpu_xcp_4", 141);
  StartAll();
  FakePod pod = AmdPod("one", {});
  pod.containers[1].given["amd.com/cpx_nps1"] = {"amdgpu_xcp_3"};
  Admit(pod);
  const ContainerEdits edits = Start("team", "one");
  EXPECT_THAT(GpuFiles(edits), UnorderedElementsAre("/dev/kfd", "/dev/dri/renderD140"));
  EXPECT_EQ(edits.Variable("GANTRY_SLOT_GPUS"), "amdgpu_xcp_3");
}

TEST_F(AmdSlotTest, AGpuThatTheNodeDoesNotKnowIsSaidSo) {
  StartAll();
  FakePod pod = AmdPod("one", {2});
  pod.containers[1].given[kAmdResource].push_back("0000:ff:00.0");
  Admit(pod);
  EXPECT_THAT(StartError("team", "one").message,
              AllOf(HasSubstr("0000:ff:00.0"), HasSubstr("--cdi-spec-dirs")));
  EXPECT_THAT(SlotFiles(kubelet_.cdi_folder(), kResource).List(), IsEmpty())
      << "with one GPU of two it would start, and miss the other later";
}

TEST_F(AmdSlotTest, APodWithoutGpusGetsNoKfdAndIsRefusedWhereAGpuIsAMust) {
  StartAll();
  Admit(AmdPod("cache", {}));
  EXPECT_THAT(GpuFiles(Start("team", "cache")), IsEmpty());
  EndPlugin();
  config_.missing_gpu = "fail";
  StartPlugin();
  AwaitSlots(4);
  EXPECT_THAT(StartError("team", "cache").message,
              HasSubstr("no container of the pod team/cache has a GPU"));
}

TEST_F(AmdSlotTest, TheNewerPodOfANamespaceSeesTheOlderOnesGpusAndNoStrangers) {
  config_.peer_gpu_visibility = "namespace";
  StartAll();
  FakePod stranger = AmdPod("stranger", {1});
  stranger.pod_namespace = "strangers";
  Admit(stranger);
  Admit(AmdPod("old", {0}));
  EXPECT_THAT(GpuFiles(Start("team", "old")), UnorderedElementsAre("/dev/kfd", RenderNode(0)));
  Admit(AmdPod("new", {2}));
  const ContainerEdits edits = Start("team", "new");
  EXPECT_THAT(GpuFiles(edits), UnorderedElementsAre("/dev/kfd", RenderNode(0), RenderNode(2)));
  EXPECT_EQ(edits.Variable("GANTRY_SLOT_PEER_GPUS"), sysfs_.gpus()[0]);
}

TEST_F(AmdSlotTest, TheSpecOfTheNodeSaysWhatAGpuNeeds) {
  std::ofstream(kubelet_.cdi_folder() + "/amd.json")
      << R"({"cdiVersion":"0.6.0","kind":"amd.com/gpu","devices":[
             {"name":"0","containerEdits":{"deviceNodes":[{"path":"/dev/kfd"},
              {"path":"/dev/dri/card0"},{"path":"/dev/dri/renderD128"}]}},
             {"name":"1","containerEdits":{"deviceNodes":[{"path":"/dev/kfd"},
              {"path":"/dev/dri/card1"},{"path":"/dev/dri/renderD129"}]}}]})";
  StartAll();
  Admit(AmdPod("one", {1}));
  const ContainerEdits edits = Start("team", "one");
  EXPECT_THAT(GpuFiles(edits), UnorderedElementsAre("/dev/kfd", "/dev/dri/card1", RenderNode(1)));
  EXPECT_THAT(edits.DeviceFiles(),
              AllOf(Contains("/dev/infiniband/uverbs1"), Not(Contains("/dev/infiniband/uverbs0"))));
}

}  // namespace
}  // namespace gantry::deviceplugin
