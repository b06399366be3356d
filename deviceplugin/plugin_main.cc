// gantry-device-plugin: reads its settings, starts the application and waits for SIGTERM or SIGINT.
#include <signal.h>

#include <iostream>

#include "deviceplugin/plugin_app.h"
#include "deviceplugin/plugin_config.h"
#include "lib/base/log.h"
#include "lib/base/version.h"
#include "lib/rpc/grpc_log.h"

namespace {

// Before any thread starts, so that all of them inherit it and only main takes the signals.
sigset_t BlockStopSignals() {
  ::signal(SIGPIPE, SIG_IGN);
  sigset_t signals;
  ::sigemptyset(&signals);
  ::sigaddset(&signals, SIGTERM);
  ::sigaddset(&signals, SIGINT);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  return signals;
}

int PrintDryRun(const gantry::deviceplugin::PluginConfig& config) {
  const auto text = gantry::deviceplugin::DryRun(config);
  if (!text) {
    std::cerr << "gantry-device-plugin: " << text.error().message << "\n"
              << text.error().hint << "\n";
    return 1;
  }
  std::cout << *text << "\n";
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  using gantry::deviceplugin::ConfigOutcome;
  const auto parsed = gantry::deviceplugin::ParsePluginConfig(argc, argv);
  if (parsed.outcome == ConfigOutcome::kExit) return parsed.exit_code;
  gantry::log::Configure("gantry-device-plugin", *gantry::log::ParseLevel(parsed.config.log_level));
  gantry::rpc::TakeGrpcLog();
  if (parsed.config.dry_run) return PrintDryRun(parsed.config);
  const sigset_t signals = BlockStopSignals();
  gantry::rpc::KeepGrpc();

  auto app = gantry::deviceplugin::PluginApp::Start(parsed.config);
  if (!app) {
    gantry::log::Error("the device plugin cannot start",
                       {{"error", app.error()}, {"hint", app.error().hint}});
    return 1;
  }
  gantry::log::Info("the device plugin runs",
                    {{"version", gantry::Version()}, {"resource", parsed.config.resource}});
  int signal = 0;
  ::sigwait(&signals, &signal);
  gantry::log::Info("the device plugin stops", {{"signal", signal}});
  app->reset();
  return 0;
}
