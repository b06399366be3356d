// Whether slots can be used: looks at what they need, and believes a change only after it was seen
// several times, in both directions. RunChecks belongs to one thread; the rest is thread-safe.
#pragma once

#include <functional>
#include <vector>

#include "deviceplugin/plugin_metrics.h"
#include "deviceplugin/slot_list.h"
#include "lib/base/result.h"

namespace gantry::deviceplugin {

class SlotHealth {
 public:
  static constexpr int kLooksToBelieve = 3;

  // Both outlive it.
  SlotHealth(SlotList& slots, PluginMetrics& metrics) : slots_(slots), metrics_(metrics) {}

  // Before the first RunChecks.
  void Need(Unhealthy reason, std::function<Status()> check);
  // The first one decides at once.
  void RunChecks();

 private:
  struct Check {
    Unhealthy reason;
    std::function<Status()> check;
    bool good = false;
    int against = 0;  // looks in a row that said otherwise
  };

  SlotList& slots_;
  PluginMetrics& metrics_;
  std::vector<Check> checks_;
  bool looked_ = false;
};

}  // namespace gantry::deviceplugin
