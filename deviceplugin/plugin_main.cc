// gantry-device-plugin: reads its settings, starts the application and waits for SIGTERM or SIGINT.
#include <signal.h>

#include <iostream>

#include "deviceplugin/plugin_app.h"
#include "deviceplugin/plugin_config.h"
#include "lib/base/log.h"
#include "lib/base/version.h"
#include "lib/process/standard_fds.h"
#include "lib/process/stop_signal.h"
#include "lib/rpc/grpc_log.h"
#include "lib/rpc/grpc_threads.h"

namespace {

// It waits for the kubelet and for what it is asked for, which have shorter bounds.
constexpr gantry::milliseconds kTimeToStop{10'000};

void SayThatItDidNotStop() {
  gantry::log::Error("the device plugin did not stop in time and ends by force",
                     {{"ms", kTimeToStop.count()}});
  gantry::log::Flush();
}

int SayThatItCannotStart(const gantry::Error& why) {
  gantry::log::Error("the device plugin cannot start", {{"error", why}, {"hint", why.hint}});
  return 1;
}

int PrintDryRun(const gantry::deviceplugin::PluginConfig& config) {
  const auto text = gantry::deviceplugin::DryRun(config);
  if (!text) {
    std::cerr << "gantry-device-plugin: " << text.error().message << "\n"
              << text.error().hint << "\n";
    return 1;
  }
  std::cout << *text << "\n";
  if (!std::cout.flush()) {
    std::cerr << "gantry-device-plugin: standard output cannot be written to\n";
    return 1;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  using gantry::deviceplugin::ConfigOutcome;
  gantry::OpenStandardFds();
  const auto parsed = gantry::deviceplugin::ParsePluginConfig(argc, argv);
  if (parsed.outcome == ConfigOutcome::kExit) return parsed.exit_code;
  gantry::log::Configure("gantry-device-plugin", *gantry::log::ParseLevel(parsed.config.log_level));
  gantry::rpc::TakeGrpcLog();
  if (parsed.config.dry_run) return PrintDryRun(parsed.config);
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGXFSZ, SIG_IGN);  // a file above the limit is an error of its write
  const auto stop = gantry::StopSignal::Watch(kTimeToStop, SayThatItDidNotStop);
  if (!stop) return SayThatItCannotStart(stop.error());
  if (const auto kept = gantry::rpc::KeepGrpc(); !kept) return SayThatItCannotStart(kept.error());

  auto app = gantry::deviceplugin::PluginApp::Start(parsed.config);
  if (!app) return SayThatItCannotStart(app.error());
  gantry::log::Info("the device plugin runs",
                    {{"version", gantry::Version()}, {"resource", parsed.config.resource}});
  gantry::log::Info("the device plugin stops", {{"signal", stop->Await()}});
  app->reset();
  return 0;
}
