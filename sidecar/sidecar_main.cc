// gantry-sidecar: becomes a copy worker when told to, else reads its settings, starts the
// application and waits for SIGTERM or SIGINT.
#include <malloc.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "lib/base/log.h"
#include "lib/base/version.h"
#include "sidecar/sidecar_app.h"
#include "sidecar/sidecar_config.h"
#include "sidecar/worker/copy_worker.h"

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

// Bodies and plans of several megabytes come with every large transfer. Kept by the allocator they
// cost no page faults, which otherwise take longer than planning.
void KeepLargeBlocks() {
  ::mallopt(M_MMAP_THRESHOLD, 32 << 20);
  ::mallopt(M_TRIM_THRESHOLD, 64 << 20);
}

// Ends the process when an orderly stop takes too long; copy workers die with it.
void StopByForceAfter(std::chrono::milliseconds time) {
  std::thread([time] {
    std::this_thread::sleep_for(time);
    gantry::log::Error("the sidecar did not stop in time and ends by force");
    ::_exit(1);
  }).detach();
}

}  // namespace

int main(int argc, char** argv) {
  if (gantry::worker::IsCopyWorker(argc, argv)) return gantry::worker::RunCopyWorker(argc, argv);
  const gantry::ParsedConfig parsed = gantry::ParseSidecarConfig(argc, argv);
  if (parsed.outcome == gantry::ConfigOutcome::kExit) return parsed.exit_code;
  const gantry::SidecarConfig& config = parsed.config;
  gantry::log::Configure("gantry-sidecar/" + config.name,
                         *gantry::log::ParseLevel(config.log_level));
  KeepLargeBlocks();
  const sigset_t signals = BlockStopSignals();

  auto app = gantry::SidecarApp::Start(config);
  if (!app) {
    gantry::log::Error("the sidecar cannot start",
                       {{"error", app.error()}, {"hint", app.error().hint}});
    return 1;
  }
  gantry::log::Info("the sidecar is ready",
                    {{"version", gantry::Version()}, {"run_dir", config.run_dir}});
  int signal = 0;
  ::sigwait(&signals, &signal);
  gantry::log::Info("the sidecar stops", {{"signal", signal}});
  StopByForceAfter(std::chrono::milliseconds(config.shutdown_ms));
  app->reset();
  gantry::log::Info("the sidecar has stopped");
  return 0;
}
