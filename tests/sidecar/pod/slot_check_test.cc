#include "sidecar/pod/slot_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "tests/lib/topology/fake_sysfs.h"

namespace gantry::pod {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kFolder[] = "/run/gantry/peers";

// A container in which everything is as it should be: of eight GPUs and NICs it has the first two
// GPUs, a peer's, and the first NIC.
class SlotCheckTest : public ::testing::Test {
 protected:
  SlotCheckTest() {
    sysfs_.AddEightGpusWithNics();
    for (size_t i = 0; i < sysfs_.gpus().size(); ++i) {
      sysfs_.Write("proc/driver/nvidia/gpus/" + sysfs_.gpus()[i] + "/information",
                   "GPU UUID: \t " + Gpu(i) + "\nBus Location: \t " + sysfs_.gpus()[i] +
                       "\nDevice Minor: \t " + std::to_string(i));
    }
    for (const char* each :
         {"dev/nvidia0", "dev/nvidia1", "dev/nvidia4", "dev/infiniband/uverbs0"}) {
      sysfs_.Write(each, "");
    }
    sysfs_.Write("sys/class/infiniband_verbs/uverbs0/ibdev", "mlx5_0");
    Mount("/gantry/peers/team");
    std::filesystem::create_directories(sysfs_.root() + kFolder);
    pod_ = {
        "one", "team",
        Slot{"slot-003", "one", "team", "gantry-sidecar", {Gpu(0), Gpu(1)}, {Gpu(4)}, {"mlx5_0"}}};
    needs_.node_dir = kFolder;
  }

  static std::string Gpu(size_t i) { return "GPU-0000000" + std::to_string(i); }
  void Mount(const std::string& source) {
    sysfs_.Write("proc/self/mountinfo",
                 "23 22 0:22 " + source + " " + kFolder + " rw - tmpfs tmpfs rw");
  }
  void Remove(const std::string& path) { std::filesystem::remove_all(sysfs_.root() + path); }

  Findings Check() const { return CheckSlot(pod_, needs_, sysfs_.root()); }
  // The only finding, which has everything that a person needs.
  Finding TheOne() const {
    const Findings findings = Check();
    EXPECT_EQ(findings.size(), 1U);
    if (findings.empty()) return {};
    EXPECT_FALSE(findings[0].advice.empty());
    return findings[0];
  }

  topology::FakeSysfs sysfs_;
  PodConfig pod_;
  SlotNeeds needs_;
};

TEST_F(SlotCheckTest, WhatIsAsItShouldBeIsNotSpokenOf) {
  EXPECT_THAT(Check(), IsEmpty());
  EXPECT_EQ(FatalText(Check()), "");
}

TEST_F(SlotCheckTest, OutsideOfKubernetesNothingIsExpected) {
  pod_ = {};
  EXPECT_THAT(Check(), IsEmpty());
}

TEST_F(SlotCheckTest, ASlotOfAnotherPodIsFatalAndNothingElseIsLookedAt) {
  pod_.slot->pod = "two";
  Mount("/gantry/peers/others");
  const Finding finding = TheOne();
  EXPECT_EQ(finding.level, FindingLevel::kFatal);
  EXPECT_EQ(finding.subject, "slot");
  EXPECT_THAT(finding.said, AllOf(HasSubstr("slot-003 is bound to the pod team/two"),
                                  HasSubstr("this is team/one"), HasSubstr("neighbour")));
  EXPECT_THAT(FatalText(Check()), AllOf(HasSubstr("team/two"), HasSubstr(finding.advice)));
}

TEST_F(SlotCheckTest, APodOfTheSameNameInAnotherNamespaceIsAnother) {
  pod_.slot->pod_namespace = "others";
  EXPECT_EQ(TheOne().level, FindingLevel::kFatal);
  EXPECT_THAT(TheOne().said, HasSubstr("others/one"));
}

TEST_F(SlotCheckTest, WithoutTheDownwardApiTheOwnerCannotBeCompared) {
  pod_.name.clear();
  EXPECT_EQ(TheOne().level, FindingLevel::kWarning);
  EXPECT_THAT(TheOne().said, AllOf(HasSubstr("GANTRY_POD_NAME is not set"), HasSubstr("team/one")));
  pod_.name = "one";
  pod_.pod_namespace.clear();
  EXPECT_THAT(TheOne().said, HasSubstr("GANTRY_POD_NAMESPACE is not set"));
}

TEST_F(SlotCheckTest, ASlotThatHasToBeThereAndIsNotIsFatal) {
  pod_.slot.reset();
  needs_.slot = true;
  EXPECT_EQ(TheOne().level, FindingLevel::kFatal);
  EXPECT_THAT(TheOne().said, HasSubstr("GANTRY_SLOT is not set"));
  EXPECT_THAT(TheOne().advice, HasSubstr("resources.limits"));
  needs_.slot = false;
  EXPECT_EQ(TheOne().level, FindingLevel::kWarning) << "the node directory is the plugin's";
  needs_.node_dir = "/elsewhere";
  EXPECT_THAT(Check(), IsEmpty());
}

TEST_F(SlotCheckTest, ASlotForWhoeverAsksForItIsOfNoPod) {
  pod_.slot->pod.clear();
  pod_.slot->pod_namespace.clear();
  pod_.slot->gpus.clear();
  Mount("/gantry/peers");
  EXPECT_THAT(Check(), IsEmpty());
}

TEST_F(SlotCheckTest, APeerFolderThatIsNotMountedIsSaid) {
  Remove("proc/self/mountinfo");
  EXPECT_EQ(TheOne().level, FindingLevel::kWarning);
  EXPECT_EQ(TheOne().subject, "peer folder");
  EXPECT_THAT(TheOne().said, HasSubstr("is not mounted"));
  needs_.node_dir = "/of/the/operator";
  EXPECT_THAT(Check(), IsEmpty());
  needs_.node_dir.clear();
  EXPECT_THAT(TheOne().said, HasSubstr("--node-dir is not given"));
}

TEST_F(SlotCheckTest, ThePeerFolderOfAnotherNamespaceIsFatal) {
  Mount("/gantry/peers/teams");
  EXPECT_EQ(TheOne().level, FindingLevel::kFatal);
  EXPECT_THAT(TheOne().said,
              AllOf(HasSubstr("/gantry/peers/teams"), HasSubstr("the namespace is team")));
  Mount("/gantry/peers/team//deleted");
  EXPECT_EQ(TheOne().level, FindingLevel::kWarning);
  EXPECT_THAT(TheOne().said, HasSubstr("another one"));
}

TEST_F(SlotCheckTest, APeerFolderThatCannotBeWrittenToIsFatal) {
  Remove("run/gantry/peers");
  EXPECT_EQ(TheOne().level, FindingLevel::kFatal);
  EXPECT_THAT(TheOne().said,
              AllOf(HasSubstr("user " + std::to_string(::geteuid())), HasSubstr("No such file")));
}

TEST_F(SlotCheckTest, GpusThatAreNotThereAreSaidOneByOne) {
  Remove("dev/nvidia1");
  Remove("dev/nvidia4");
  const Findings findings = Check();
  ASSERT_EQ(findings.size(), 2U);
  EXPECT_EQ(findings[0].subject, "GPU " + Gpu(1));
  EXPECT_THAT(findings[0].said, AllOf(HasSubstr("/dev/nvidia1"), HasSubstr("No such file")));
  EXPECT_EQ(findings[0].level, FindingLevel::kWarning);
  EXPECT_EQ(findings[1].subject, "GPU " + Gpu(4)) << "a peer's";
  needs_.gpus = false;
  EXPECT_THAT(Check(), IsEmpty());
}

TEST_F(SlotCheckTest, AGpuThatItsDriverDoesNotShowIsSaid) {
  pod_.slot->gpus = {"GPU-gone"};
  EXPECT_EQ(TheOne().subject, "GPU GPU-gone");
  EXPECT_THAT(TheOne().said, HasSubstr("does not show it"));
}

TEST_F(SlotCheckTest, APodWithoutAGpuToShareIsSaid) {
  pod_.slot->gpus.clear();
  EXPECT_EQ(TheOne().subject, "GPUs");
  EXPECT_EQ(TheOne().level, FindingLevel::kWarning);
  needs_.gpus = false;
  EXPECT_THAT(Check(), IsEmpty());
}

TEST_F(SlotCheckTest, AnRdmaDeviceOfAnotherNetworkNamespaceIsSaid) {
  Remove("sys/class/infiniband/mlx5_0");
  EXPECT_EQ(TheOne().subject, "RDMA mlx5_0");
  EXPECT_THAT(TheOne().said, HasSubstr("network namespace"));
  needs_.rdma = false;
  EXPECT_THAT(Check(), IsEmpty());
}

TEST_F(SlotCheckTest, AnRdmaDeviceWithoutItsFileIsSaid) {
  Remove("dev/infiniband/uverbs0");
  EXPECT_THAT(TheOne().said, HasSubstr("cannot open /dev/infiniband/uverbs0: No such file"));
  Remove("sys/class/infiniband_verbs");
  EXPECT_THAT(TheOne().said, HasSubstr("no device file"));
}

TEST_F(SlotCheckTest, LittleLockedMemoryIsSaidWhereItMatters) {
  needs_.locked_bytes_min = 1 << 20;
  needs_.locked_bytes_max = 65536;
  EXPECT_EQ(TheOne().subject, "locked memory");
  EXPECT_THAT(TheOne().said, HasSubstr("65536 bytes"));
  needs_.locked_bytes_max = 1 << 20;
  EXPECT_THAT(Check(), IsEmpty());
  needs_.locked_bytes_max = 65536;
  pod_.slot->rdma_devices.clear();
  EXPECT_THAT(Check(), IsEmpty());
}

}  // namespace
}  // namespace gantry::pod
