// The wiring of the device plugin: builds every object in order, and stops them in the reverse
// order. Start and the destructor belong to the main thread.
#pragma once

#include <memory>
#include <string>

#include "deviceplugin/plugin_config.h"
#include "lib/base/result.h"

namespace gantry::deviceplugin {

class PluginApp {
 public:
  static Result<std::unique_ptr<PluginApp>> Start(const PluginConfig& config);
  virtual ~PluginApp() = default;
};

// What the slots of the node's pods would be given now, as JSON.
Result<std::string> DryRun(const PluginConfig& config);

}  // namespace gantry::deviceplugin
