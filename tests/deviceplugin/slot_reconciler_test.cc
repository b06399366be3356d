// What the plugin mends by itself: files of pods that are gone, and files that say what is not so.
#include "deviceplugin/slot_reconciler.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <optional>

#include "lib/base/fd_passing.h"
#include "lib/base/file_lock.h"
#include "tests/deviceplugin/plugin_fixture.h"

namespace gantry::deviceplugin {
namespace {

namespace fs = std::filesystem;
using ::testing::Each;
using ::testing::HasSubstr;

class SlotReconcilerTest : public PluginTest {
 protected:
  std::vector<SlotFiles::Entry> Specs() const {
    return SlotFiles(kubelet_.cdi_folder(), kResource).List();
  }
  bool HasSpecFor(const std::string& pod) const {
    const auto specs = Specs();
    return std::any_of(specs.begin(), specs.end(),
                       [&](const SlotFiles::Entry& entry) { return entry.pod == pod; });
  }
  void StartOne() {
    StartAll();
    Admit(InferencePod("team", "one", {}));
    Start("team", "one");
    ASSERT_TRUE(HasSpecFor("one"));
  }
};

TEST_F(SlotReconcilerTest, ASpecGoesSomeTimeAfterItsPod) {
  StartOne();
  kubelet_.Remove("team", "one");
  EXPECT_TRUE(Eventually([&] { return Specs().empty(); }));
}

TEST_F(SlotReconcilerTest, ASpecStaysWhileItsPodDoes) {
  StartOne();
  std::this_thread::sleep_for(milliseconds(400));  // eight rounds
  EXPECT_TRUE(HasSpecFor("one"));
}

TEST_F(SlotReconcilerTest, NothingIsRemovedWhileTheKubeletDoesNotAnswer) {
  StartOne();
  kubelet_.FailPodResources(true);
  kubelet_.Remove("team", "one");
  std::this_thread::sleep_for(milliseconds(400));
  EXPECT_TRUE(HasSpecFor("one"));
  kubelet_.FailPodResources(false);
  EXPECT_TRUE(Eventually([&] { return Specs().empty(); }));
}

TEST_F(SlotReconcilerTest, SpecsOutliveThePlugin) {
  StartOne();
  plugin_.reset();
  EXPECT_TRUE(HasSpecFor("one"));
  StartPlugin();
  AwaitSlots(4);
  std::this_thread::sleep_for(milliseconds(400));
  EXPECT_TRUE(HasSpecFor("one"));
}

TEST_F(SlotReconcilerTest, AContainerOfARestartedKubeletStartsAgainWithoutThePlugin) {
  StartOne();
  plugin_.reset();
  kubelet_.Restart();  // it knows no plugin, and asks none
  EXPECT_EQ(Start("team", "one").Variable("GANTRY_SLOT_POD"), "one");
}

TEST_F(SlotReconcilerTest, ASlotWhosePreStartWasSkippedIsBoundAnyway) {
  StartAll();
  Admit(InferencePod("team", "one", {}));
  // Nobody has called PreStartContainer; without a spec the container cannot start, and is tried
  // again.
  EXPECT_TRUE(Eventually([&] { return HasSpecFor("one"); }));
}

TEST_F(SlotReconcilerTest, ASpecOfAnotherPodIsWrittenAnew) {
  StartOne();
  const std::string slot = Specs().front().slot;
  SlotFiles files(kubelet_.cdi_folder(), kResource);
  SlotPlan wrong;
  wrong.cdi_version = "0.5.0";
  wrong.edits.AddVariable("GANTRY_SLOT_POD", "stranger");
  ASSERT_TRUE(files.Write(slot, wrong, files.EpochOf(slot)));
  EXPECT_TRUE(Eventually([&] { return HasSpecFor("one") && !HasSpecFor("stranger"); }));
}

TEST_F(SlotReconcilerTest, AReusedSlotNeverHasTheSpecOfItsFormerPod) {
  config_.slots = 1;
  StartAll();
  for (int round = 0; round < 20; ++round) {
    const std::string pod = "pod-" + std::to_string(round);
    Admit(InferencePod("team", pod, {}));
    EXPECT_EQ(Start("team", pod).Variable("GANTRY_SLOT_POD"), pod);
    kubelet_.Remove("team", pod);
  }
}

TEST_F(SlotReconcilerTest, WhatAKilledPluginWasWritingIsRemoved) {
  const std::string base = kubelet_.cdi_folder() + "/gantry.dev-transfer-slot-001.json.";
  const std::string old = base + "00112233445566aa";
  const std::string young = base + "00112233445566bb";
  const std::string foreign = base + "bak";
  for (const std::string& file : {old, young, foreign}) std::ofstream(file) << "{";
  for (const std::string& file : {old, foreign}) {
    fs::last_write_time(file, fs::file_time_type::clock::now() - std::chrono::hours(1));
  }
  StartAll();
  EXPECT_TRUE(Eventually([&] { return !fs::exists(old); }, milliseconds(2'000)));
  EXPECT_TRUE(fs::exists(young));
  EXPECT_TRUE(fs::exists(foreign));
}

TEST_F(SlotReconcilerTest, SpecsOfOthersAreLeftAlone) {
  const std::string other = kubelet_.cdi_folder() + "/gantry.dev-transfer-foreign.json";
  std::ofstream(other) << R"({"cdiVersion":"0.5.0","kind":"other.dev/transfer","devices":[]})";
  StartOne();
  kubelet_.Remove("team", "one");
  EXPECT_TRUE(Eventually([&] { return Specs().empty(); }));
  EXPECT_TRUE(fs::exists(other));
}

TEST_F(SlotReconcilerTest, AFolderOfANamespaceGoesWithItsPodsButNotWhileSomebodyListens) {
  StartOne();
  const std::string folder = config_.peer_dir + "/team";
  auto listening = ListenUnix(folder + "/a.sock", SOCK_STREAM, 0600, 1);
  ASSERT_TRUE(listening) << listening.error().message;
  kubelet_.Remove("team", "one");
  EXPECT_TRUE(Eventually([&] { return Specs().empty(); }));
  std::this_thread::sleep_for(milliseconds(200));
  EXPECT_TRUE(fs::exists(folder));
  listening->reset();
  EXPECT_TRUE(Eventually([&] { return !fs::exists(folder); }));
}

// What a sidecar has in its folder while it lives, and leaves there when it is killed.
struct SidecarFiles {
  SidecarFiles(const std::string& folder, const std::string& name) : base(folder + "/" + name) {
    lock.reset(::open((base + ".peer.lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    // The plugin has it for a moment when it looks whether somebody has.
    EXPECT_TRUE(
        Eventually([&] { return TryLock(lock.get(), base + ".peer.lock") == FileLock::kTaken; }));
    sockets.push_back(*ListenUnix(base + ".peer.sock", SOCK_STREAM, 0600, 1));
    sockets.push_back(*ListenUnix(base + ".fds.sock", SOCK_SEQPACKET, 0600, 1));
  }
  void Die() {
    sockets.clear();
    lock.reset();
  }
  std::vector<bool> There() const {
    return {fs::exists(base + ".peer.lock"), fs::exists(base + ".peer.sock"),
            fs::exists(base + ".fds.sock")};
  }

  const std::string base;
  UniqueFd lock;
  std::vector<UniqueFd> sockets;
};

TEST_F(SlotReconcilerTest, WhatKilledSidecarsLeftKeepsNoFolder) {
  StartOne();
  SidecarFiles sidecar(config_.peer_dir + "/team", "one");
  sidecar.Die();
  kubelet_.Remove("team", "one");
  EXPECT_TRUE(Eventually([&] { return !fs::exists(config_.peer_dir + "/team"); }));
}

TEST_F(SlotReconcilerTest, ANameIsFreeForTheNextPodWhenItsSidecarIsGone) {
  StartOne();
  const std::string folder = config_.peer_dir + "/team";
  SidecarFiles living(folder, "living");
  SidecarFiles killed(folder, "one");
  const std::string precious = kubelet_.File("precious");
  std::ofstream(precious) << "x";
  fs::create_symlink(precious, folder + "/link.peer.lock");
  fs::create_directory(folder + "/directory.peer.lock");
  std::ofstream(folder + "/other-file") << "x";
  killed.Die();
  Start("team", "one");
  EXPECT_THAT(killed.There(), Each(false));
  EXPECT_THAT(living.There(), Each(true));
  EXPECT_TRUE(fs::exists(precious));
  EXPECT_TRUE(fs::exists(folder + "/other-file"));
  EXPECT_TRUE(fs::is_directory(folder + "/directory.peer.lock"));
}

// Leaves its pods out of one answer, as a kubelet that is just starting may.
class ForgetfulPods final : public PodDevicesSource {
 public:
  static constexpr int kForgets = 2;

  Result<std::vector<PodDevices>> List(TimePoint) override {
    if (++asked_ == kForgets) return std::vector<PodDevices>();
    return std::vector<PodDevices>{{"team", "one", {{kSidecar, {{kResource, {"slot-000"}}}, {}}}}};
  }
  int asked() const { return asked_; }

 private:
  std::atomic<int> asked_ = 0;
};

TEST_F(SlotReconcilerTest, OneAnswerWithoutThePodIsNotBelieved) {
  ForgetfulPods pods;
  const auto metrics = PluginMetrics::Make();
  SlotList slots(1);
  SlotFiles files(kubelet_.cdi_folder(), kResource);
  const PeerFolders folders(kubelet_.File("peers"));
  SlotBinderOptions options;
  options.rules.resource = kResource;
  options.rules.peer_folder = folders.parent();
  options.rules.root = sysfs_.root();
  SlotBinder binder(options, pods, files, folders, *metrics);
  SlotHealth health(slots, *metrics);
  ASSERT_TRUE(binder.Bind("slot-000", Clock::now() + milliseconds(1'000)));
  SlotReconcilerOptions rounds;
  rounds.resource = kResource;
  rounds.interval = milliseconds(10);
  const SlotReconciler reconciler(rounds, {pods, slots, files, binder, folders, health, *metrics});
  EXPECT_TRUE(Eventually([&] { return pods.asked() >= ForgetfulPods::kForgets + 4; }));
  EXPECT_THAT(metrics->Text(), HasSubstr("gantry_dp_cdi_files_removed_total 0"));
  EXPECT_TRUE(HasSpecFor("one"));
}

// Answers without pods, while a container of a pod that it leaves out is being started.
class LatePods final : public PodDevicesSource {
 public:
  explicit LatePods(const PeerFolders& folders) : folders_(folders) {}

  Result<std::vector<PodDevices>> List(TimePoint) override {
    const std::string folder = folders_.parent() + "/team";
    if (asked_++ > 0 && !fs::exists(folder)) ++missing_;
    EXPECT_TRUE(folders_.Make(folder));
    return std::vector<PodDevices>();
  }
  int asked() const { return asked_; }
  int missing() const { return missing_; }

 private:
  const PeerFolders& folders_;
  std::atomic<int> asked_ = 0;
  std::atomic<int> missing_ = 0;
};

// Every slot is in two pods.
class DisputedPods final : public PodDevicesSource {
 public:
  static constexpr int kSlots = 30;

  Result<std::vector<PodDevices>> List(TimePoint) override {
    const std::vector<std::string> slots = SlotList(kSlots).names();
    const std::vector<ContainerDevices> containers = {{kSidecar, {{kResource, slots}}, {}}};
    return std::vector<PodDevices>{{"team", "old", containers}, {"team", "new", containers}};
  }
};

// Three slots: two of one namespace, one of another.
class ThreePods final : public PodDevicesSource {
 public:
  Result<std::vector<PodDevices>> List(TimePoint) override {
    const auto containers = [](const char* slot) {
      return std::vector<ContainerDevices>{{kSidecar, {{kResource, {slot}}}, {}}};
    };
    return std::vector<PodDevices>{{"team", "one", containers("slot-000")},
                                   {"team", "two", containers("slot-001")},
                                   {"lone", "one", containers("slot-002")}};
  }
};

// What a reconciler needs, around pods of a test.
class Reconciliation {
 public:
  Reconciliation(PodDevicesSource& pods, const PeerFolders& folders, const std::string& cdi_folder,
                 const std::string& root, int slots)
      : slots_(slots),
        files_(cdi_folder, kResource),
        binder_(OptionsFor(folders, root), pods, files_, folders, *metrics_) {
    SlotReconcilerOptions rounds;
    rounds.resource = kResource;
    rounds.interval = milliseconds(10);
    reconciler_.emplace(
        rounds, SlotReconciler::Parts{pods, slots_, files_, binder_, folders, health_, *metrics_});
  }
  void End() { reconciler_.reset(); }
  bool Shows(const std::string& sample) const {
    return metrics_->Text().find(sample + "\n") != std::string::npos;
  }

 private:
  static SlotBinderOptions OptionsFor(const PeerFolders& folders, const std::string& root) {
    SlotBinderOptions options;
    options.rules.resource = kResource;
    options.rules.peer_folder = folders.parent();
    options.rules.root = root;
    options.find_max = milliseconds(300);
    return options;
  }

  const std::unique_ptr<PluginMetrics> metrics_ = PluginMetrics::Make();
  SlotList slots_;
  SlotFiles files_;
  SlotBinder binder_;
  SlotHealth health_{slots_, *metrics_};
  std::optional<SlotReconciler> reconciler_;
};

TEST_F(SlotReconcilerTest, AFolderThatWasMadeSinceTheKubeletWasAskedStays) {
  const PeerFolders folders(kubelet_.File("peers"));
  LatePods pods(folders);
  Reconciliation rounds(pods, folders, kubelet_.cdi_folder(), sysfs_.root(), 1);
  ASSERT_TRUE(Eventually([&] { return pods.asked() > 10; }));
  EXPECT_EQ(pods.missing(), 0);
}

TEST_F(SlotReconcilerTest, SidecarsThatLiveAreCountedButNoMoreThanSlots) {
  const PeerFolders folders(kubelet_.File("peers"));
  for (const char* const name : {"/team", "/lone"}) {
    ASSERT_TRUE(folders.Make(folders.parent() + name));
  }
  ThreePods pods;
  Reconciliation rounds(pods, folders, kubelet_.cdi_folder(), sysfs_.root(), 4);
  ASSERT_TRUE(Eventually([&] { return rounds.Shows("gantry_dp_slots{state=\"bound\"} 3"); }));
  EXPECT_TRUE(rounds.Shows("gantry_dp_sidecars 0")) << "a slot is no sidecar";
  SidecarFiles one(folders.parent() + "/team", "one");
  EXPECT_TRUE(Eventually([&] { return rounds.Shows("gantry_dp_sidecars 1"); }));
  SidecarFiles first(folders.parent() + "/lone", "one");
  SidecarFiles second(folders.parent() + "/lone", "without-a-slot");
  EXPECT_TRUE(Eventually([&] { return rounds.Shows("gantry_dp_sidecars 2"); }));
  std::this_thread::sleep_for(milliseconds(100));
  EXPECT_TRUE(rounds.Shows("gantry_dp_sidecars 2"));
  one.Die();
  EXPECT_TRUE(Eventually([&] { return rounds.Shows("gantry_dp_sidecars 1"); }));
}

TEST_F(SlotReconcilerTest, SlotsThatCannotBeBoundKeepNoPluginFromEnding) {
  const PeerFolders folders(kubelet_.File("peers"));
  DisputedPods pods;
  Reconciliation rounds(pods, folders, kubelet_.cdi_folder(), sysfs_.root(), DisputedPods::kSlots);
  std::this_thread::sleep_for(milliseconds(200));
  const TimePoint start = Clock::now();
  rounds.End();
  EXPECT_LT(Clock::now() - start, milliseconds(2'000));
}

}  // namespace
}  // namespace gantry::deviceplugin
