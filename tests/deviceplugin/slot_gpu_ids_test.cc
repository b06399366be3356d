// Device ids as the plugins of the field give them, and nodes whose driver lists no GPUs.
#include <algorithm>
#include <fstream>

#include "tests/deviceplugin/plugin_fixture.h"

namespace gantry::deviceplugin {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

class SlotGpuIdsTest : public PluginTest {
 protected:
  SlotGpuIdsTest() {
    sysfs_.AddEightGpusWithNics();
    config_.peer_gpu_visibility = "none";
  }

  // As nvidia-ctk writes them: each GPU by its number and by its UUID, all of them, a MIG slice.
  void WriteSpecs() {
    std::ofstream spec(kubelet_.cdi_folder() + "/nvidia.yaml");
    spec << "cdiVersion: 0.6.0\nkind: nvidia.com/gpu\ndevices:\n";
    for (int i = 0; i < 4; ++i) {
      const std::string number = std::to_string(i);
      const std::string edits = "  containerEdits: {deviceNodes: [{path: /dev/nvidia" + number +
                                ", fileMode: 0666}, {path: /dev/dri/card" + number + "}]}\n";
      spec << "- name: " << number << "\n" << edits;
      spec << "- name: " << GpuUuid(static_cast<size_t>(i)) << "\n" << edits;
    }
    spec << "- name: \"4:0\"\n  containerEdits: {deviceNodes: [{path: /dev/nvidia4}, "
            "{path: /dev/nvidia-caps/nvidia-cap30}]}\n"
            "- name: all\n  containerEdits: {deviceNodes: [{path: /dev/nvidia0}, "
            "{path: /dev/nvidia1}]}\n"
            "containerEdits: {deviceNodes: [{path: /dev/nvidiactl}]}\n";
  }
  ContainerEdits EditsFor(const std::string& id) {
    Admit(InferencePod("team", "one", {id}));
    const ContainerEdits edits = Start("team", "one");
    kubelet_.Remove("team", "one");
    return edits;
  }
};

TEST_F(SlotGpuIdsTest, GpusAreNamedByTheirFilesToo) {
  AddDriverFiles(sysfs_);
  StartAll();
  for (const char* const id : {"nvidia3", "nvidia3/vgpu2"}) {
    const ContainerEdits edits = EditsFor(id);
    EXPECT_EQ(edits.Variable("GANTRY_SLOT_GPUS"), GpuUuid(3)) << id;
    EXPECT_EQ(edits.Variable("GANTRY_SLOT_RDMA_DEVICES"), "mlx5_3") << id;
    EXPECT_THAT(edits.DeviceFiles(), AllOf(Contains("/dev/nvidia3"), Contains("/dev/nvidiactl")));
  }
}

TEST_F(SlotGpuIdsTest, AnIdThatNamesNoGpuLeavesTheSlotWithoutOne) {
  AddDriverFiles(sysfs_);
  StartAll();
  for (const std::string& id :
       {GpuUuid(2) + "-1", GpuUuid(2) + "[0-1]", std::string("2"), std::string("nvidia2/gi1"),
        std::string("nvidia2/gi1/vgpu0"), std::string("MIG-GPU-1/2/0"), std::string("share-7")}) {
    const ContainerEdits edits = EditsFor(id);
    EXPECT_EQ(edits.Variable("GANTRY_SLOT_POD"), "one") << id;
    EXPECT_EQ(edits.Variable("GANTRY_SLOT_GPUS"), "") << id;
    EXPECT_THAT(edits.DeviceFiles(), Not(Contains(HasSubstr("nvidia")))) << id;
  }
}

TEST_F(SlotGpuIdsTest, AnIdThatNamesNoGpuIsRefusedWhereOneIsAMust) {
  AddDriverFiles(sysfs_);
  config_.missing_gpu = "fail";
  StartAll();
  Admit(InferencePod("team", "one", {GpuUuid(2) + "-1"}));
  EXPECT_THAT(StartError("team", "one").message,
              AllOf(HasSubstr(GpuUuid(2) + "-1 does not say which GPU"),
                    HasSubstr("--missing-gpu=rdmaOnly")));
}

// Its driver may come: the kubelet tries again.
TEST_F(SlotGpuIdsTest, AnIdOfAGpuThatIsNotThereIsWaitedFor) {
  AddDriverFiles(sysfs_);
  StartAll();
  Admit(InferencePod("team", "one", {"nvidia77"}));
  EXPECT_THAT(StartError("team", "one").message, HasSubstr("the GPU nvidia77 is in no CDI spec"));
}

TEST_F(SlotGpuIdsTest, ANumberIsTheGpuThatTheSpecsNameSo) {
  WriteSpecs();
  AddDriverFiles(sysfs_);
  StartAll();
  const ContainerEdits edits = EditsFor("2");
  EXPECT_EQ(edits.Variable("GANTRY_SLOT_GPUS"), GpuUuid(2));
  EXPECT_EQ(edits.Variable("GANTRY_SLOT_RDMA_DEVICES"), "mlx5_2");
  EXPECT_EQ(edits.json()["deviceNodes"][1]["fileMode"], 438);
  const ContainerEdits part = EditsFor("4:0");
  EXPECT_EQ(part.Variable("GANTRY_SLOT_GPUS"), "");
  EXPECT_THAT(part.DeviceFiles(), Not(Contains(HasSubstr("nvidia"))));
}

// As where /proc/driver/nvidia is not there for the plugin's container.
TEST_F(SlotGpuIdsTest, WithoutTheDriversListTheSpecsSayWhichGpusANodeHas) {
  WriteSpecs();
  config_.peer_gpu_visibility = "node";
  StartAll();
  for (const std::string& id : {GpuUuid(2), std::string("nvidia2"), std::string("2")}) {
    const ContainerEdits edits = EditsFor(id);
    EXPECT_EQ(edits.Variable("GANTRY_SLOT_GPUS"), GpuUuid(2)) << id;
    EXPECT_EQ(edits.Variable("GANTRY_SLOT_PEER_GPUS"),
              GpuUuid(0) + "," + GpuUuid(1) + "," + GpuUuid(3))
        << id;
    EXPECT_THAT(edits.DeviceFiles(),
                AllOf(Contains("/dev/nvidia0"), Contains("/dev/nvidia1"), Contains("/dev/nvidia2"),
                      Contains("/dev/nvidia3"), Not(Contains("/dev/nvidia4"))))
        << id;
  }
}

}  // namespace
}  // namespace gantry::deviceplugin
