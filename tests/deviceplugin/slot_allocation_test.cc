// What a kubelet should not send, and what it is slow to say: a plugin that is asked for slots that
// are not there or that others have, and PodResources that take their time.
#include <fstream>

#include "deviceplugin/slot_files.h"
#include "tests/deviceplugin/plugin_fixture.h"

namespace gantry::deviceplugin {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

class SlotAllocationTest : public PluginTest {
 protected:
  SlotAllocationTest() {
    sysfs_.AddEightGpusWithNics();
    AddDriverFiles(sysfs_);
    config_.peer_gpu_visibility = "none";
  }

  std::vector<SlotFiles::Entry> Specs() const {
    return SlotFiles(kubelet_.cdi_folder(), kResource).List();
  }
  std::string SlotOf(const std::string& pod) const {
    return kubelet_.DevicesOf(pod, kSidecar, kResource).front();
  }
  // Of the pod named "one", which runs and has the GPU 0.
  std::string StartOne() {
    StartAll();
    Admit(InferencePod("team", "one", {GpuUuid(0)}));
    EXPECT_EQ(Start("team", "one").Variable("GANTRY_SLOT_GPUS"), GpuUuid(0));
    return SlotOf("one");
  }
};

TEST_F(SlotAllocationTest, IdsThatAreNoSlotsAreRefusedByName) {
  const std::string held = StartOne();
  const std::string beside = kubelet_.File("beside.json");
  std::ofstream(beside) << "{}";
  for (const char* const id : {"slot-004", "slot-999", "slot-0", "GPU-1", "", "../beside",
                               "slot-000/../../beside", "slot-000 "}) {
    const auto allocated = kubelet_.AllocateIds(kResource, {id});
    ASSERT_FALSE(allocated) << id;
    EXPECT_THAT(allocated.error().message,
                AllOf(HasSubstr("'" + std::string(id) + "' is no slot of gantry.dev/transfer"),
                      HasSubstr("which has 4"), HasSubstr("--slots")));
  }
  EXPECT_TRUE(std::ifstream(beside).is_open());
  ASSERT_THAT(Specs(), SizeIs(1));
  EXPECT_EQ(Specs().front().slot, held);
}

TEST_F(SlotAllocationTest, NoSlotAndMoreThanOneAreRefused) {
  const std::string held = StartOne();
  EXPECT_THAT(kubelet_.AllocateIds(kResource, {}).error().message, HasSubstr("ask for 1"));
  EXPECT_THAT(kubelet_.AllocateIds(kResource, {held, "slot-002"}).error().message,
              HasSubstr("ask for 1"));
  EXPECT_THAT(Specs(), SizeIs(1)) << "what was refused has taken the slot from its pod";
}

TEST_F(SlotAllocationTest, ASlotThatIsGivenOutOnceMoreStaysItsPods) {
  const std::string held = StartOne();
  const auto again = kubelet_.AllocateIds(kResource, {held});
  ASSERT_TRUE(again) << again.error().message;
  ASSERT_THAT(again->cdi_devices(), SizeIs(1));
  EXPECT_EQ(again->cdi_devices(0).name(), "gantry.dev/transfer=" + held);
  // Whoever has it by PodResources gets it back, without being asked for.
  ASSERT_TRUE(Eventually([&] { return !Specs().empty(); }));
  EXPECT_EQ(Specs().front().pod, "one");
  EXPECT_EQ(Start("team", "one").Variable("GANTRY_SLOT_GPUS"), GpuUuid(0));
}

TEST_F(SlotAllocationTest, UntilItsPodIsKnownASlotThatWasGivenOutHasNoDevice) {
  config_.reconcile_ms = 60'000;
  const std::string held = StartOne();
  ASSERT_THAT(Specs(), SizeIs(1));
  ASSERT_TRUE(kubelet_.AllocateIds(kResource, {held}));
  EXPECT_THAT(Specs(), IsEmpty()) << "a container that starts now would get the pod's before";
}

TEST_F(SlotAllocationTest, ASlotOfTwoPodsIsBoundForNeitherUntilOneLeaves) {
  config_.reconcile_ms =
      60'000;  // or it binds the slot for the first pod before the second is known
  const std::string held = StartOne();
  const auto again = kubelet_.AllocateIds(kResource, {held});
  ASSERT_TRUE(again) << again.error().message;
  kubelet_.RecordPod(InferencePod("team", "two", {GpuUuid(5)}), kSidecar, kResource,
                     {{held}, *again});
  EXPECT_THAT(StartError("team", "two").message,
              AllOf(HasSubstr("PreStartContainer"), HasSubstr(held)));
  EXPECT_THAT(Specs(), IsEmpty());
  kubelet_.Remove("team", "one");
  const ContainerEdits two = Start("team", "two");
  EXPECT_EQ(two.Variable("GANTRY_SLOT_GPUS"), GpuUuid(5));
  EXPECT_THAT(two.DeviceFiles(), Not(Contains("/dev/nvidia0")));
}

TEST_F(SlotAllocationTest, ASlowAnswerIsWaitedForWithinTheKubeletsTime) {
  StartAll();
  Admit(InferencePod("team", "one", {GpuUuid(2)}));
  kubelet_.DelayPodResources(milliseconds(3'000));
  const TimePoint start = Clock::now();
  const ContainerEdits edits = Start("team", "one");
  const auto took = Clock::now() - start;
  EXPECT_EQ(edits.Variable("GANTRY_SLOT_GPUS"), GpuUuid(2));
  EXPECT_THAT(edits.DeviceFiles(), AllOf(Contains("/dev/nvidia2"), Not(Contains("/dev/nvidia0"))));
  EXPECT_GE(took, milliseconds(3'000));
  EXPECT_LT(took, milliseconds(20'000));
  EXPECT_EQ(kubelet_.Allocatable(kResource), 4) << "slow is not unreachable";
}

}  // namespace
}  // namespace gantry::deviceplugin
