#include "sidecar/pod/pod_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

namespace gantry::pod {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class PodConfigTest : public ::testing::Test {
 protected:
  ~PodConfigTest() override { Set({}); }

  static PodConfig Read(const std::map<std::string, std::string>& variables) {
    Set(variables);
    return ReadPodConfig();
  }

 private:
  static void Set(const std::map<std::string, std::string>& variables) {
    for (const char* name :
         {"GANTRY_POD_NAME", "GANTRY_POD_NAMESPACE", "GANTRY_SLOT", "GANTRY_SLOT_POD",
          "GANTRY_SLOT_NAMESPACE", "GANTRY_SLOT_CONTAINER", "GANTRY_SLOT_GPUS",
          "GANTRY_SLOT_PEER_GPUS", "GANTRY_SLOT_RDMA_DEVICES"}) {
      const auto found = variables.find(name);
      if (found == variables.end()) {
        ::unsetenv(name);
      } else {
        ::setenv(name, found->second.c_str(), 1);
      }
    }
  }
};

TEST_F(PodConfigTest, ReadsWhatKubernetesAndThePluginSay) {
  const PodConfig config = Read({{"GANTRY_POD_NAME", "one"},
                                 {"GANTRY_POD_NAMESPACE", "team"},
                                 {"GANTRY_SLOT", "slot-003"},
                                 {"GANTRY_SLOT_POD", "two"},
                                 {"GANTRY_SLOT_NAMESPACE", "others"},
                                 {"GANTRY_SLOT_CONTAINER", "gantry-sidecar"},
                                 {"GANTRY_SLOT_GPUS", "GPU-a,GPU-b"},
                                 {"GANTRY_SLOT_PEER_GPUS", "GPU-c"},
                                 {"GANTRY_SLOT_RDMA_DEVICES", ""}});
  EXPECT_EQ(config.name, "one");
  EXPECT_EQ(config.pod_namespace, "team");
  ASSERT_TRUE(config.slot);
  EXPECT_EQ(config.slot->id, "slot-003");
  EXPECT_EQ(config.slot->pod, "two");
  EXPECT_EQ(config.slot->pod_namespace, "others");
  EXPECT_EQ(config.slot->container, "gantry-sidecar");
  EXPECT_THAT(config.slot->gpus, ElementsAre("GPU-a", "GPU-b"));
  EXPECT_THAT(config.slot->peer_gpus, ElementsAre("GPU-c"));
  EXPECT_THAT(config.slot->rdma_devices, IsEmpty());
}

TEST_F(PodConfigTest, WithoutASlotThereIsNone) {
  EXPECT_FALSE(Read({}).slot);
  EXPECT_FALSE(Read({{"GANTRY_SLOT", ""}, {"GANTRY_SLOT_GPUS", "GPU-a"}}).slot);
  EXPECT_EQ(Read({}).name, "");
}

TEST_F(PodConfigTest, EmptyPlacesInAListAreNoNames) {
  const PodConfig config = Read({{"GANTRY_SLOT", "s"}, {"GANTRY_SLOT_GPUS", ",a,,b,"}});
  EXPECT_THAT(config.slot->gpus, ElementsAre("a", "b"));
}

}  // namespace
}  // namespace gantry::pod
