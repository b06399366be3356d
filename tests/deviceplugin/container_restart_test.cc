// A container that starts again, after whatever happened to the kubelet and the plugin meanwhile:
// it has the slot, the GPUs and the spec that it had, or does not start.
#include <filesystem>
#include <tuple>

#include "deviceplugin/slot_files.h"
#include "tests/deviceplugin/plugin_fixture.h"

namespace gantry::deviceplugin {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

enum class Kubelet { kStays, kRestarts };
enum class Plugin { kStays, kRegistersAgain, kRestarts, kComesLater };
enum class Container { kRan, kNeverRan };

class ContainerRestartTest
    : public PluginTest,
      public ::testing::WithParamInterface<std::tuple<Kubelet, Plugin, Container>> {
 protected:
  ContainerRestartTest() {
    sysfs_.AddEightGpusWithNics();
    AddDriverFiles(sysfs_);
    config_.peer_gpu_visibility = "none";
    config_.reconcile_ms = 60'000;  // one round, at the start
  }

  Kubelet kubelet_fate() const { return std::get<0>(GetParam()); }
  Plugin plugin_fate() const { return std::get<1>(GetParam()); }
  Container container() const { return std::get<2>(GetParam()); }

  void LetThePluginRegisterAgain() {
    const int before = kubelet_.registrations();
    for (const auto& entry : fs::directory_iterator(kubelet_.plugin_folder())) {
      const std::string name = entry.path().filename();
      if (name.starts_with("gantry-")) fs::remove(entry.path());
    }
    ASSERT_TRUE(Eventually([&] { return kubelet_.registrations() > before; }));
    AwaitSlots(4);
  }

  // What it has while the plugin is away: a kubelet that knows the plugin cannot ask it, and one
  // that was restarted does not; the runtime then finds what was bound before.
  void ExpectWithoutThePlugin(const std::string& slot) {
    const auto edits = kubelet_.StartContainer("team", "one", kSidecar);
    if (kubelet_fate() == Kubelet::kRestarts && container() == Container::kRan) {
      ASSERT_TRUE(edits) << edits.error().message;
      EXPECT_EQ(ContainerEdits(*edits).Variable("GANTRY_SLOT"), slot);
      EXPECT_EQ(ContainerEdits(*edits).Variable("GANTRY_SLOT_GPUS"), GpuUuid(0));
      return;
    }
    ASSERT_FALSE(edits) << edits->dump();
    EXPECT_THAT(
        edits.error().message,
        HasSubstr(kubelet_fate() == Kubelet::kRestarts ? "unresolvable CDI devices" : "stopped"));
  }

  void ChangePlugin(const std::string& slot) {
    if (plugin_fate() == Plugin::kRegistersAgain) return LetThePluginRegisterAgain();
    if (plugin_fate() == Plugin::kStays) return;
    plugin_.reset();
    ASSERT_TRUE(Eventually([&] { return kubelet_.Allocatable(kResource) == 0; }));
    if (plugin_fate() == Plugin::kComesLater) {
      if (kubelet_fate() == Kubelet::kRestarts) kubelet_.Restart();
      ExpectWithoutThePlugin(slot);
    }
    StartPlugin();
    AwaitSlots(4);
  }
};

TEST_P(ContainerRestartTest, ItHasWhatItHad) {
  StartAll();
  Admit(InferencePod("team", "one", {GpuUuid(0)}));
  Admit(InferencePod("team", "neighbour", {GpuUuid(3)}));
  const std::string slot = kubelet_.DevicesOf("one", kSidecar, kResource).front();
  const ContainerEdits neighbour = Start("team", "neighbour");
  if (container() == Container::kRan) Start("team", "one");

  ASSERT_NO_FATAL_FAILURE(ChangePlugin(slot));
  if (kubelet_fate() == Kubelet::kRestarts && plugin_fate() != Plugin::kComesLater) {
    kubelet_.Restart();
    AwaitSlots(4);
  }

  for (int start = 0; start < 2; ++start) {
    const ContainerEdits edits = Start("team", "one");
    EXPECT_EQ(edits.Variable("GANTRY_SLOT"), slot);
    EXPECT_EQ(edits.Variable("GANTRY_SLOT_POD"), "one");
    EXPECT_EQ(edits.Variable("GANTRY_SLOT_GPUS"), GpuUuid(0));
    EXPECT_THAT(edits.DeviceFiles(),
                AllOf(Contains("/dev/nvidia0"), Not(Contains("/dev/nvidia3"))));
  }
  EXPECT_EQ(Start("team", "neighbour").json(), neighbour.json());
  Admit(InferencePod("team", "next", {GpuUuid(5)}));
  const std::string next = kubelet_.DevicesOf("next", kSidecar, kResource).front();
  EXPECT_NE(next, slot);
  EXPECT_NE(next, kubelet_.DevicesOf("neighbour", kSidecar, kResource).front());
  EXPECT_EQ(Start("team", "next").Variable("GANTRY_SLOT_GPUS"), GpuUuid(5));
}

std::string NameOf(const ::testing::TestParamInfo<std::tuple<Kubelet, Plugin, Container>>& info) {
  constexpr const char* kKubelets[] = {"KubeletStays", "KubeletRestarts"};
  constexpr const char* kPlugins[] = {"PluginStays", "PluginRegistersAgain", "PluginRestarts",
                                      "PluginComesLater"};
  constexpr const char* kContainers[] = {"ContainerRan", "ContainerNeverRan"};
  const auto [kubelet, plugin, container] = info.param;
  return std::string(kKubelets[static_cast<int>(kubelet)]) + kPlugins[static_cast<int>(plugin)] +
         kContainers[static_cast<int>(container)];
}

INSTANTIATE_TEST_SUITE_P(
    All, ContainerRestartTest,
    ::testing::Combine(::testing::Values(Kubelet::kStays, Kubelet::kRestarts),
                       ::testing::Values(Plugin::kStays, Plugin::kRegistersAgain, Plugin::kRestarts,
                                         Plugin::kComesLater),
                       ::testing::Values(Container::kRan, Container::kNeverRan)),
    NameOf);

}  // namespace
}  // namespace gantry::deviceplugin
