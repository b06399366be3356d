// What containers get: a whole plugin between a fake kubelet and a fake node.
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <thread>

#include "deviceplugin/cdi/cdi_specs.h"
#include "tests/deviceplugin/plugin_fixture.h"

namespace gantry::deviceplugin {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

class SlotBindingTest : public PluginTest {
 protected:
  SlotBindingTest() {
    sysfs_.AddEightGpusWithNics();
    AddDriverFiles(sysfs_);
    for (int i = 0; i < 10; ++i) {
      const std::string number = std::to_string(i);
      sysfs_.Write("sys/class/infiniband_verbs/uverbs" + number + "/ibdev", "mlx5_" + number);
    }
    sysfs_.Write("sys/class/misc/rdma_cm/abi_version", "6");
  }

  std::vector<std::string> SlotSpecs() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(kubelet_.cdi_folder())) {
      const std::string name = entry.path().filename();
      if (name.starts_with("gantry.dev-transfer-")) names.push_back(name);
    }
    std::sort(names.begin(), names.end());
    return names;
  }
};

TEST_F(SlotBindingTest, ASidecarGetsTheGpusOfItsSiblingsAndOfNobodyElse) {
  config_.peer_gpu_visibility = "none";
  StartAll();
  Admit(InferencePod("team", "one", {GpuUuid(0)}));
  Admit(InferencePod("team", "two", {GpuUuid(3), GpuUuid(5)}));
  const ContainerEdits one = Start("team", "one");
  const ContainerEdits two = Start("team", "two");
  EXPECT_EQ(one.Variable("GANTRY_SLOT_GPUS"), GpuUuid(0));
  EXPECT_THAT(one.DeviceFiles(), AllOf(Contains("/dev/nvidia0"), Contains("/dev/nvidiactl"),
                                       Contains("/dev/nvidia-uvm"), Not(Contains("/dev/nvidia3")),
                                       Not(Contains("/dev/nvidia5"))));
  EXPECT_EQ(two.Variable("GANTRY_SLOT_GPUS"), GpuUuid(3) + "," + GpuUuid(5));
  EXPECT_THAT(two.DeviceFiles(), AllOf(Contains("/dev/nvidia3"), Contains("/dev/nvidia5"),
                                       Not(Contains("/dev/nvidia0"))));
  EXPECT_EQ(two.Variable("GANTRY_SLOT_PEER_GPUS"), "");
  EXPECT_EQ(two.Variable("NVIDIA_VISIBLE_DEVICES"), GpuUuid(3) + "," + GpuUuid(5));
}

TEST_F(SlotBindingTest, ASidecarIsToldWhoseItIs) {
  StartAll();
  Admit(InferencePod("team", "one", {GpuUuid(0)}));
  const ContainerEdits edits = Start("team", "one");
  EXPECT_EQ(edits.Variable("GANTRY_SLOT_NAMESPACE"), "team");
  EXPECT_EQ(edits.Variable("GANTRY_SLOT_POD"), "one");
  EXPECT_EQ(edits.Variable("GANTRY_SLOT_CONTAINER"), kSidecar);
  EXPECT_EQ(edits.Variable("GANTRY_SLOT"), kubelet_.DevicesOf("one", kSidecar, kResource).front());
}

TEST_F(SlotBindingTest, TheNearestNicsComeAlong) {
  config_.peer_gpu_visibility = "none";
  StartAll();
  Admit(InferencePod("team", "one", {GpuUuid(2)}));
  const ContainerEdits edits = Start("team", "one");
  EXPECT_EQ(edits.Variable("GANTRY_SLOT_RDMA_DEVICES"), "mlx5_2");
  EXPECT_THAT(edits.DeviceFiles(),
              AllOf(Contains("/dev/infiniband/uverbs2"), Contains("/dev/infiniband/rdma_cm"),
                    Not(Contains("/dev/infiniband/uverbs3"))));
}

TEST_F(SlotBindingTest, NoNicsWhereRdmaIsSwitchedOff) {
  config_.no_rdma = true;
  StartAll();
  Admit(InferencePod("team", "one", {GpuUuid(2)}));
  const ContainerEdits edits = Start("team", "one");
  EXPECT_EQ(edits.Variable("GANTRY_SLOT_RDMA_DEVICES"), "");
  EXPECT_THAT(edits.DeviceFiles(), Not(Contains(HasSubstr("infiniband"))));
}

TEST_F(SlotBindingTest, TheNewerPodOfANamespaceSeesTheOlderOnesGpus) {
  StartAll();
  Admit(InferencePod("team", "old", {GpuUuid(0)}));
  Admit(InferencePod("strangers", "other", {GpuUuid(1)}));
  const ContainerEdits old = Start("team", "old");
  Admit(InferencePod("team", "new", {GpuUuid(2)}));
  const ContainerEdits late = Start("team", "new");
  EXPECT_EQ(old.Variable("GANTRY_SLOT_PEER_GPUS"), "");
  EXPECT_EQ(late.Variable("GANTRY_SLOT_GPUS"), GpuUuid(2));
  EXPECT_EQ(late.Variable("GANTRY_SLOT_PEER_GPUS"), GpuUuid(0));
  EXPECT_THAT(late.DeviceFiles(), AllOf(Contains("/dev/nvidia0"), Contains("/dev/nvidia2"),
                                        Not(Contains("/dev/nvidia1"))));
}

TEST_F(SlotBindingTest, GpusOfPodsWithoutASidecarAreNotSeen) {
  StartAll();
  FakePod bare{"team", "bare", {{"engine", {}, {{kGpuResource, {GpuUuid(4)}}}}}};
  Admit(bare);
  Admit(InferencePod("team", "one", {GpuUuid(2)}));
  EXPECT_EQ(Start("team", "one").Variable("GANTRY_SLOT_PEER_GPUS"), "");
}

TEST_F(SlotBindingTest, AllGpusOfTheNodeWhereItBelongsToOneTenant) {
  config_.peer_gpu_visibility = "node";
  StartAll();
  Admit(InferencePod("team", "one", {GpuUuid(2)}));
  const ContainerEdits edits = Start("team", "one");
  EXPECT_EQ(edits.Variable("GANTRY_SLOT_GPUS"), GpuUuid(2));
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_THAT(edits.DeviceFiles(), Contains("/dev/nvidia" + std::to_string(i)));
  }
}

TEST_F(SlotBindingTest, APodWithoutGpusGetsNoneAndRdmaOfAnyNode) {
  config_.peer_gpu_visibility = "node";
  StartAll();
  Admit(InferencePod("team", "cache", {}));
  const ContainerEdits edits = Start("team", "cache");
  EXPECT_EQ(edits.Variable("GANTRY_SLOT_GPUS"), "");
  EXPECT_THAT(edits.DeviceFiles(), Not(Contains(HasSubstr("nvidia"))));
  EXPECT_THAT(edits.Variable("GANTRY_SLOT_RDMA_DEVICES"), HasSubstr("mlx5_9"));
}

TEST_F(SlotBindingTest, APodWithoutGpusIsRefusedWhereOneIsAMust) {
  config_.missing_gpu = "fail";
  StartAll();
  Admit(InferencePod("team", "cache", {}));
  EXPECT_THAT(StartError("team", "cache").message,
              AllOf(HasSubstr("no container of the pod team/cache has a GPU"),
                    HasSubstr("--missing-gpu=rdmaOnly")));
  EXPECT_THAT(SlotSpecs(), IsEmpty());
}

TEST_F(SlotBindingTest, PartsOfGpusAreRefusedByName) {
  config_.missing_gpu = "fail";
  StartAll();
  FakePod pod = InferencePod("team", "sliced", {});
  pod.containers[1].given["nvidia.com/mig-1g.10gb"] = {"MIG-11111111-2222-3333-4444-555555555555"};
  Admit(pod);
  EXPECT_THAT(StartError("team", "sliced").message, HasSubstr("MIG-11111111"));
}

TEST_F(SlotBindingTest, ReplicasOfASharedGpuAreThatGpu) {
  config_.peer_gpu_visibility = "none";
  StartAll();
  FakePod pod = InferencePod("team", "shared", {});
  pod.containers[1].given["nvidia.com/gpu.shared"] = {GpuUuid(6) + "::3"};
  Admit(pod);
  EXPECT_EQ(Start("team", "shared").Variable("GANTRY_SLOT_GPUS"), GpuUuid(6));
}

TEST_F(SlotBindingTest, AGpuThatTheNodeDoesNotKnowIsSaidSo) {
  StartAll();
  Admit(InferencePod("team", "one", {GpuUuid(9)}));
  EXPECT_THAT(StartError("team", "one").message,
              AllOf(HasSubstr(GpuUuid(9)), HasSubstr("--cdi-spec-dirs")));
}

TEST_F(SlotBindingTest, TheSpecsOfTheNodeSayWhatAGpuNeeds) {
  std::ofstream(kubelet_.cdi_folder() + "/nvidia.yaml")
      << "cdiVersion: 0.6.0\nkind: nvidia.com/gpu\ndevices:\n"
         "- name: \"2\"\n  containerEdits:\n    deviceNodes:\n    - path: /dev/nvidia2\n"
         "- name: all\n  containerEdits:\n    deviceNodes:\n    - path: /dev/nvidia2\n"
         "    - path: /dev/nvidia3\n"
         "containerEdits:\n  env:\n  - NVIDIA_VISIBLE_DEVICES=void\n  hooks:\n"
         "  - hookName: createContainer\n    path: /usr/bin/nvidia-cdi-hook\n"
         "    args: [nvidia-cdi-hook, update-ldcache, --folder, /usr/lib64]\n";
  StartAll();
  Admit(InferencePod("team", "one", {GpuUuid(2)}));
  const ContainerEdits edits = Start("team", "one");
  EXPECT_EQ(edits.json()["hooks"][0]["path"], "/usr/bin/nvidia-cdi-hook");
  EXPECT_EQ(edits.Variable("NVIDIA_VISIBLE_DEVICES"), "void");
  EXPECT_THAT(edits.DeviceFiles(), AllOf(Contains("/dev/nvidia2"), Not(Contains("/dev/nvidia3")),
                                         Not(Contains("/dev/nvidiactl"))));
  std::ifstream spec(kubelet_.cdi_folder() + "/" + SlotSpecs().front());
  EXPECT_EQ(nlohmann::json::parse(spec)["cdiVersion"], "0.6.0");
}

TEST_F(SlotBindingTest, ClaimedGpusAreFoundByTheirCdiNames) {
  config_.peer_gpu_visibility = "none";
  std::ofstream(kubelet_.cdi_folder() + "/k8s.gpu.nvidia.com-claim.json")
      << R"({"cdiVersion":"0.5.0","kind":"k8s.gpu.nvidia.com/device","devices":[
             {"name":"gpu-4","containerEdits":{"deviceNodes":[{"path":"/dev/nvidia4"}]}}]})";
  StartAll();
  FakePod pod = InferencePod("team", "claims", {});
  v1::ClaimResource claim;
  claim.set_driver_name("gpu.nvidia.com");
  claim.set_device_name("gpu-4");
  claim.add_cdi_devices()->set_name("k8s.gpu.nvidia.com/device=gpu-4");
  pod.containers[1].claimed.push_back(claim);
  Admit(pod);
  const ContainerEdits edits = Start("team", "claims");
  EXPECT_EQ(edits.Variable("GANTRY_SLOT_GPUS"), GpuUuid(4));
  EXPECT_EQ(edits.Variable("GANTRY_SLOT_RDMA_DEVICES"), "mlx5_4");
  EXPECT_THAT(edits.DeviceFiles(), Contains("/dev/nvidia4"));
}

TEST_F(SlotBindingTest, SidecarsOfANamespaceShareAFolderThatOthersCannotReach) {
  StartAll();
  Admit(InferencePod("team", "one", {}));
  Admit(InferencePod("strangers", "other", {}));
  const ContainerEdits edits = Start("team", "one");
  Start("strangers", "other");
  const auto& mount = edits.json()["mounts"][0];
  EXPECT_EQ(mount["hostPath"], config_.peer_dir + "/team");
  EXPECT_EQ(mount["containerPath"], "/run/gantry/peers");
  struct stat folder = {};
  ASSERT_EQ(::stat((config_.peer_dir + "/team").c_str(), &folder), 0);
  EXPECT_EQ(folder.st_mode & 07777, 01777U);
  ASSERT_EQ(::stat(config_.peer_dir.c_str(), &folder), 0);
  EXPECT_EQ(folder.st_mode & 07777, 0711U);
}

TEST_F(SlotBindingTest, APodThatTheKubeletHasNotRecordedYetIsWaitedFor) {
  StartAll();
  Admit(InferencePod("team", "one", {GpuUuid(0)}));
  kubelet_.HidePods(true);
  std::thread record([&] {
    std::this_thread::sleep_for(milliseconds(300));
    kubelet_.HidePods(false);
  });
  EXPECT_EQ(Start("team", "one").Variable("GANTRY_SLOT_POD"), "one");
  record.join();
}

TEST_F(SlotBindingTest, AnAnswerThatFailsForAMomentIsAskedForAgain) {
  StartAll();
  Admit(InferencePod("team", "one", {GpuUuid(0)}));
  kubelet_.FailPodResources(true);
  std::thread mend([&] {
    std::this_thread::sleep_for(milliseconds(300));
    kubelet_.FailPodResources(false);
  });
  EXPECT_EQ(Start("team", "one").Variable("GANTRY_SLOT_POD"), "one");
  mend.join();
}

TEST_F(SlotBindingTest, AllocateDoesNotWaitForASlowKubelet) {
  StartAll();
  kubelet_.DelayPodResources(milliseconds(2'000));
  const TimePoint start = Clock::now();
  Admit(InferencePod("team", "one", {}));
  EXPECT_LT(Clock::now() - start, milliseconds(1'500));
}

TEST_F(SlotBindingTest, TwoSlotsForOneContainerAreRefusedWithTheWayOut) {
  StartAll();
  const FakePod greedy{"team", "greedy", {{kSidecar, {{kResource, 2}}}}};
  EXPECT_THAT(kubelet_.Admit(greedy).error().message, HasSubstr("ask for 1"));
}

TEST_F(SlotBindingTest, ContainersOfOnePodHaveSlotsOfTheirOwn) {
  StartAll();
  const FakePod pod{"team",
                    "two",
                    {{"first", {{kResource, 1}}},
                     {"second", {{kResource, 1}}},
                     {"engine", {}, {{kGpuResource, {GpuUuid(0)}}}}}};
  Admit(pod);
  EXPECT_NE(kubelet_.DevicesOf("two", "first", kResource),
            kubelet_.DevicesOf("two", "second", kResource));
  for (const char* const container : {"first", "second"}) {
    const auto edits = kubelet_.StartContainer("team", "two", container);
    ASSERT_TRUE(edits) << edits.error().message;
    EXPECT_EQ(ContainerEdits(*edits).Variable("GANTRY_SLOT_CONTAINER"), container);
    EXPECT_EQ(ContainerEdits(*edits).Variable("GANTRY_SLOT_GPUS"), GpuUuid(0));
  }
}

TEST_F(SlotBindingTest, WithoutCdiEverySlotGetsTheWholeNode) {
  config_.binding = "allocate";
  StartAll();
  Admit(InferencePod("team", "one", {GpuUuid(0)}));
  const auto allocated = kubelet_.AllocatedFor("one", kSidecar, kResource);
  EXPECT_EQ(allocated.cdi_devices_size(), 0);
  std::vector<std::string> files;
  for (const auto& device : allocated.devices()) {
    files.push_back(device.host_path());
    EXPECT_EQ(device.permissions(), "rw");
  }
  EXPECT_THAT(files, AllOf(Contains("/dev/nvidia0"), Contains("/dev/nvidia7"),
                           Contains(HasSubstr("uverbs"))));
  ASSERT_THAT(allocated.mounts(), SizeIs(1));
  EXPECT_EQ(allocated.mounts(0).host_path(), config_.peer_dir);
  EXPECT_THAT(SlotSpecs(), IsEmpty());
}

// Nobody makes another folder for them: the one folder is for every user from the start.
TEST_F(SlotBindingTest, WithoutCdiEverySidecarCanPutItsSocketsIntoTheOneFolder) {
  config_.binding = "allocate";
  StartAll();
  Admit(InferencePod("team", "one", {GpuUuid(0)}));
  std::this_thread::sleep_for(milliseconds(300));  // six looks at what slots need
  struct stat folder = {};
  ASSERT_EQ(::stat(config_.peer_dir.c_str(), &folder), 0);
  EXPECT_EQ(folder.st_mode & 07777, 01777U);
}

TEST_F(SlotBindingTest, ASlotBeyondTheListIsBoundToThePodThatHasIt) {
  StartAll();
  for (const char* const pod : {"a", "b", "c", "d"}) Admit(InferencePod("team", pod, {}));
  const std::string last = kubelet_.DevicesOf("d", kSidecar, kResource).front();
  ASSERT_EQ(last, "slot-003");
  plugin_.reset();
  config_.slots = 1;
  StartPlugin();
  ASSERT_TRUE(Eventually([&] { return kubelet_.Capacity(kResource) == 1; }));
  EXPECT_EQ(Start("team", "d").Variable("GANTRY_SLOT"), last);
}

TEST_F(SlotBindingTest, ClaimedPartsOfGpusAreRefused) {
  std::ofstream(kubelet_.cdi_folder() + "/k8s.gpu.nvidia.com-claim.json")
      << R"({"cdiVersion":"0.5.0","kind":"k8s.gpu.nvidia.com/claim","devices":[
             {"name":"mig","containerEdits":{"deviceNodes":[{"path":"/dev/nvidia4"},
              {"path":"/dev/nvidia-caps/nvidia-cap30"}]}}]})";
  StartAll();
  FakePod pod = InferencePod("team", "claims", {});
  v1::ClaimResource claim;
  claim.set_driver_name("gpu.nvidia.com");
  claim.set_device_name("gpu-4-mig-9-0-4");
  claim.add_cdi_devices()->set_name("k8s.gpu.nvidia.com/claim=mig");
  pod.containers[1].claimed.push_back(claim);
  Admit(pod);
  const ContainerEdits edits = Start("team", "claims");
  EXPECT_EQ(edits.Variable("GANTRY_SLOT_GPUS"), "");
  EXPECT_THAT(edits.DeviceFiles(), Not(Contains(HasSubstr("nvidia"))));
  EndPlugin();
  config_.missing_gpu = "fail";
  StartPlugin();
  AwaitSlots(4);
  EXPECT_THAT(StartError("team", "claims").message, HasSubstr("part of a GPU"));
}

TEST_F(SlotBindingTest, AnInitContainerThatDoesNotRestartIsNamedAsTheCause) {
  StartAll();
  Admit(InferencePod("team", "one", {}));
  kubelet_.HidePods(true);
  EXPECT_THAT(StartError("team", "one").message, HasSubstr("restartPolicy: Always"));
}

TEST_F(SlotBindingTest, AKubeletThatDoesNotAnswerKeepsNoPluginFromEnding) {
  StartAll();
  Admit(InferencePod("team", "one", {GpuUuid(0)}));
  kubelet_.DelayPodResources(milliseconds(4'000));
  std::thread asks([&] { EXPECT_FALSE(kubelet_.StartContainer("team", "one", kSidecar)); });
  std::this_thread::sleep_for(milliseconds(300));
  const TimePoint start = Clock::now();
  plugin_.reset();
  EXPECT_LT(Clock::now() - start, milliseconds(2'000));
  asks.join();
}

TEST_F(SlotBindingTest, WhoeverWroteItARuntimeHasTimeToReadASpec) {
  config_.settle_ms = 1'000;
  StartAll();
  Admit(InferencePod("team", "one", {}));
  // The reconciler is there first, as nobody has asked for the container yet.
  ASSERT_TRUE(Eventually([&] { return !SlotSpecs().empty(); }));
  const TimePoint written = Clock::now();
  Start("team", "one");
  EXPECT_GE(Clock::now() - written, milliseconds(900));
}

TEST_F(SlotBindingTest, ADryRunSaysWhatWouldBeBound) {
  StartAll();
  Admit(InferencePod("team", "one", {GpuUuid(1)}));
  const auto text = DryRun(config_);
  ASSERT_TRUE(text) << text.error().message;
  const auto list = nlohmann::json::parse(*text);
  ASSERT_EQ(list.size(), 1U);
  EXPECT_EQ(list[0]["pod"], "one");
  EXPECT_EQ(list[0]["gpus"][0], GpuUuid(1));
}

}  // namespace
}  // namespace gantry::deviceplugin
