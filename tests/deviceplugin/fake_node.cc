// A node for a device plugin that runs as a process of its own: a fake kubelet, GPUs and NICs, and
// pods that come and go. Prints the plugin's arguments, one a line, and ends with its input.
#include <poll.h>
#include <unistd.h>

#include <iostream>

#include "tests/deviceplugin/plugin_fixture.h"

namespace gantry::deviceplugin {
namespace {

constexpr int kSlots = 8;
constexpr int kPodsAtATime = 5;
constexpr int kStepsBetweenRestarts = 40;
constexpr int kStepMs = 250;
const std::string kAbsentGpu = "GPU-00000000-0000-4000-8000-00000000dead";

class FakeNode {
 public:
  FakeNode() {
    sysfs_.AddEightGpusWithNics();
    AddDriverFiles(sysfs_);
    kubelet_.Start();
  }

  void PrintArguments() const {
    std::cout << "--kubelet-dir=" << kubelet_.plugin_folder()
              << "\n--pod-resources-dir=" << kubelet_.pod_resources_folder()
              << "\n--cdi-dir=" << kubelet_.cdi_folder()
              << "\n--cdi-spec-dirs=" << kubelet_.cdi_folder()
              << "\n--peer-dir=" << kubelet_.File("peers") << "\n--host-root=" << sysfs_.root()
              << "\n--slots=" << kSlots << "\n\n"
              << std::flush;
  }

  void Step() {
    if (kubelet_.Allocatable(kResource) < kSlots) return;
    ++step_;
    kubelet_.Remove("chat", "decode-" + std::to_string(step_ - kPodsAtATime));
    if (step_ % kStepsBetweenRestarts == 0) return kubelet_.Restart();
    // One in four asks for a GPU that the node does not have: its container is not started.
    const bool wrong = step_ % 4 == 0;
    const std::string name = "decode-" + std::to_string(step_);
    if (kubelet_.Admit(InferencePod("chat", name, {wrong ? kAbsentGpu : GpuUuid(step_ % 8)}))) {
      static_cast<void>(kubelet_.StartContainer("chat", name, kSidecar));
    }
  }

 private:
  topology::FakeSysfs sysfs_;
  FakeKubelet kubelet_;
  int step_ = 0;
};

}  // namespace
}  // namespace gantry::deviceplugin

int main() {
  gantry::deviceplugin::FakeNode node;
  node.PrintArguments();
  pollfd input{STDIN_FILENO, POLLIN, 0};
  while (poll(&input, 1, gantry::deviceplugin::kStepMs) == 0) {
    node.Step();
  }
  return 0;
}
