// The functions by which NIXL loads the plugin.
#include <unistd.h>

#include <exception>
#include <memory>
#include <string>

#include "client/include/gantry.h"
#include "connectors/nixl/abi/loaded_nixl.h"
#include "connectors/nixl/abi/nixl_interface.h"
#include "connectors/nixl/agent/nixl_plugin_config.h"
#include "connectors/nixl/agent/plugin_log.h"
#include "connectors/nixl/nixl_engine.h"

namespace gantry::nixl {
namespace {

Result<BackendEngine*> MakeEngine(const InitParams& params) {
  ASSIGN_OR_RETURN(const PluginConfig config, ReadPluginConfig(*params.parameters));
  ASSIGN_OR_RETURN(auto agent, GantryAgent::Open(config, params.agent));
  return new NixlEngine(params, std::move(agent));
}

BackendEngine* CreateEngine(const InitParams* params) {
  try {
    auto engine = MakeEngine(*params);
    if (engine) return *engine;
    plugin_log::Warning("the agent has no backend GANTRY", engine.error());
  } catch (const std::exception& failure) {
    plugin_log::Warning(failure.what());
  }
  return nullptr;
}

// A child of fork has none of the engine's threads, and must not end its parent's lease.
void DestroyEngine(BackendEngine* engine) {
  if (engine != nullptr && static_cast<NixlEngine*>(engine)->owner() == ::getpid()) delete engine;
}

PluginRecord record = {
    kPluginApiVersion,
    CreateEngine,
    DestroyEngine,
    [] { return "GANTRY"; },
    [] { return GANTRY_VERSION; },
    [] { return DefaultParameters(); },
    [] {
      return MemoryTypes{MemoryType::kDram, MemoryType::kVram};
    },
};

}  // namespace
}  // namespace gantry::nixl

extern "C" GANTRY_EXPORT gantry::nixl::PluginRecord* nixl_plugin_init() {
  try {
    const auto checked =
        gantry::nixl::CheckLoadedNixl(__builtin_return_address(0), gantry::nixl::AllowsNewerNixl());
    if (checked) return &gantry::nixl::record;
    gantry::nixl::plugin_log::Warning("the backend GANTRY is not loaded", checked.error());
  } catch (const std::exception&) {  // no memory is left
  }
  return nullptr;
}

extern "C" GANTRY_EXPORT void nixl_plugin_fini() {}
