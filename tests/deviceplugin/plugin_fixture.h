// A fake kubelet, a fake node of GPUs and NICs, and a whole device plugin between them. Used by one
// thread.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "deviceplugin/plugin_app.h"
#include "deviceplugin/slot_plan.h"
#include "tests/deviceplugin/fake_kubelet.h"
#include "tests/lib/topology/fake_sysfs.h"

namespace gantry::deviceplugin {

inline constexpr char kResource[] = "gantry.dev/transfer";
inline constexpr char kGpuResource[] = "nvidia.com/gpu";
inline constexpr char kSidecar[] = "gantry-sidecar";

inline std::string GpuUuid(size_t index) {
  return "GPU-0000000" + std::to_string(index) + "-aaaa-bbbb-cccc-dddddddddddd";
}

// An init container that restarts, before the workload's container, which has these GPUs.
inline FakePod InferencePod(const std::string& pod_namespace, const std::string& name,
                            std::vector<std::string> gpus) {
  FakeContainer sidecar{kSidecar, {{kResource, 1}}};
  FakeContainer workload{"engine"};
  if (!gpus.empty()) workload.given[kGpuResource] = std::move(gpus);
  return {pod_namespace, name, {sidecar, workload}};
}

// The driver's files of GPUs at the addresses of `sysfs`, as driver 580 writes them.
inline void AddDriverFiles(topology::FakeSysfs& sysfs) {
  for (size_t i = 0; i < sysfs.gpus().size(); ++i) {
    sysfs.Write("proc/driver/nvidia/gpus/" + sysfs.gpus()[i] + "/information",
                "Model: \t\t NVIDIA H100 80GB HBM3\nGPU UUID: \t " + GpuUuid(i) +
                    "\nBus Location: \t " + sysfs.gpus()[i] + "\nDevice Minor: \t " +
                    std::to_string(i) + "\nGPU Excluded:\t No");
  }
}

class PluginTest : public ::testing::Test {
 protected:
  PluginTest() {
    config_.kubelet_dir = kubelet_.plugin_folder();
    config_.pod_resources_dir = kubelet_.pod_resources_folder();
    config_.cdi_dir = kubelet_.cdi_folder();
    config_.cdi_spec_dirs = {kubelet_.cdi_folder()};
    config_.peer_dir = kubelet_.File("peers");
    config_.host_root = sysfs_.root();
    config_.slots = 4;
    config_.settle_ms = 0;
    config_.reconcile_ms = 50;
  }

  void StartPlugin() {
    auto started = PluginApp::Start(config_);
    ASSERT_TRUE(started) << started.error().message;
    plugin_ = *std::move(started);
  }
  void StartAll() {
    kubelet_.Start();
    StartPlugin();
    AwaitSlots(config_.slots);
  }
  // Returns when the kubelet has heard of it: until then AwaitSlots sees the slots of the one
  // before.
  void EndPlugin() {
    plugin_.reset();
    AwaitSlots(0);
  }
  void AwaitSlots(int count) {
    ASSERT_TRUE(Eventually([&] { return kubelet_.Allocatable(kResource) == count; }))
        << kubelet_.Allocatable(kResource);
  }
  void Admit(const FakePod& pod) {
    const Status admitted = kubelet_.Admit(pod);
    ASSERT_TRUE(admitted) << admitted.error().message;
  }
  // The edits of the pod's sidecar; empty after a failure, which is reported.
  ContainerEdits Start(const std::string& pod_namespace, const std::string& pod) {
    const auto edits = kubelet_.StartContainer(pod_namespace, pod, kSidecar);
    EXPECT_TRUE(edits) << edits.error().message;
    return edits ? ContainerEdits(*edits) : ContainerEdits();
  }
  Error StartError(const std::string& pod_namespace, const std::string& pod) {
    const auto edits = kubelet_.StartContainer(pod_namespace, pod, kSidecar);
    EXPECT_FALSE(edits);
    return edits ? Error() : edits.error();
  }

  topology::FakeSysfs sysfs_;
  FakeKubelet kubelet_;
  PluginConfig config_;
  std::unique_ptr<PluginApp> plugin_;
};

}  // namespace gantry::deviceplugin
