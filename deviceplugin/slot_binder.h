// Gives a slot's container what its pod's devices are, just before the container starts: asks the
// kubelet whose the slot is, plans, makes the folder of peers and writes the slot's CDI spec.
// Thread-safe.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "deviceplugin/peer_folders.h"
#include "deviceplugin/plugin_metrics.h"
#include "deviceplugin/slot_files.h"
#include "deviceplugin/slot_plan.h"
#include "lib/base/clock.h"

namespace gantry::deviceplugin {

struct SlotBinderOptions {
  SlotPlanRules rules;
  // Runtimes read a new spec a moment after it was written.
  milliseconds settle{150};
  // The kubelet may ask before it has recorded the pod.
  milliseconds find_max{5'000};
  milliseconds ask_again{100};
  milliseconds ask_max{5'000};  // for one answer
};

class SlotBinder {
 public:
  // All of them outlive the binder.
  SlotBinder(SlotBinderOptions options, PodDevicesSource& pods, SlotFiles& files,
             const PeerFolders& folders, PluginMetrics& metrics);

  // When it succeeds the runtime resolves the slot's CDI name to what the plan says. Each failure
  // is counted by its reason.
  Status Bind(std::string_view slot, TimePoint deadline);

  // What Bind would write for each pod that has a slot now.
  struct Preview {
    std::string slot;
    Result<SlotPlan> plan;
  };
  Result<std::vector<Preview>> PreviewAll(TimePoint deadline) const;

 private:
  struct Failure {
    BindFailure reason;
    Error error;
  };

  tl::expected<SlotPlan, Failure> PlanFor(std::string_view slot, TimePoint deadline) const;
  tl::expected<void, Failure> TryBind(std::string_view slot, TimePoint deadline);

  const SlotBinderOptions options_;
  PodDevicesSource& pods_;
  SlotFiles& files_;
  const PeerFolders& folders_;
  PluginMetrics& metrics_;
};

}  // namespace gantry::deviceplugin
