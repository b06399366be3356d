#include "deviceplugin/slot_health.h"

#include <utility>

#include "lib/base/log.h"

namespace gantry::deviceplugin {

void SlotHealth::Need(Unhealthy reason, std::function<Status()> check) {
  checks_.push_back({reason, std::move(check)});
}

void SlotHealth::RunChecks() {
  bool all = true;
  for (Check& check : checks_) {
    const Status seen = check.check();
    check.against = seen.has_value() == check.good ? 0 : check.against + 1;
    const bool turns = check.against >= kLooksToBelieve || !looked_;
    if (turns) {
      check.good = seen.has_value();
      check.against = 0;
      metrics_.SetUnhealthy(check.reason, !check.good);
      if (!check.good) {
        log::Error("slots cannot be used", {{"error", seen.error()}, {"hint", seen.error().hint}});
      } else if (looked_) {
        log::Info("what kept slots from being used is over");
      }
    }
    all &= check.good;
  }
  looked_ = true;
  slots_.SetHealthy(all);
}

}  // namespace gantry::deviceplugin
