// gantry-sidecar: becomes a copy worker when told to, else reads its settings, starts the
// application and waits for SIGTERM or SIGINT.
#include <malloc.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <exception>
#include <memory>
#include <semaphore>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "lib/base/log.h"
#include "lib/base/thread.h"
#include "lib/base/version.h"
#include "lib/rpc/grpc_log.h"
#include "sidecar/pod/termination_message.h"
#include "sidecar/pod_standing.h"
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

// Where Kubernetes looks for why the process ended. Set before threads start.
std::string& TerminationLog() {
  static auto* const path = new std::string();
  return *path;
}

void SayWhyItEnds(std::string_view text) {
  gantry::pod::WriteTerminationMessage(TerminationLog(), text);
}

std::binary_semaphore& StopBegins() {
  static std::binary_semaphore semaphore(0);
  return semaphore;
}

// Ends the process when an orderly stop takes too long; copy workers die with it. Its thread waits
// from the start: when the stop begins, there may be none to be had.
gantry::Status WatchTheStop(std::chrono::milliseconds time) {
  ASSIGN_OR_RETURN(std::jthread thread, gantry::StartThread("gantry-stop", [time] {
                     StopBegins().acquire();
                     std::this_thread::sleep_for(time);
                     gantry::log::Error("the sidecar did not stop in time and ends by force");
                     SayWhyItEnds("the sidecar did not stop within " +
                                  std::to_string(time.count()) +
                                  " ms of SIGTERM (--shutdown-ms) and ended by force");
                     ::_exit(1);
                   }));
  thread.detach();
  return {};
}

// Of an exception that nobody catches: a bug.
[[noreturn]] void EndWithoutReturn() {
  std::string what = "it ended by std::terminate";
  try {
    if (const auto current = std::current_exception()) std::rethrow_exception(current);
  } catch (const std::exception& error) {
    what = std::string("an exception that nobody caught: ") + error.what();
  } catch (...) {
    what = "an exception of an unknown kind that nobody caught";
  }
  gantry::log::Error("the sidecar ends", {{"why", what}});
  SayWhyItEnds("the sidecar ended over " + what);
  std::abort();
}

}  // namespace

int main(int argc, char** argv) {
  if (gantry::worker::IsCopyWorker(argc, argv)) return gantry::worker::RunCopyWorker(argc, argv);
  const gantry::ParsedConfig parsed = gantry::ParseSidecarConfig(argc, argv);
  TerminationLog() = parsed.config.termination_log;
  if (parsed.outcome == gantry::ConfigOutcome::kExit) {
    if (parsed.exit_code != 0) SayWhyItEnds("gantry-sidecar: " + parsed.usage_error);
    return parsed.exit_code;
  }
  const gantry::SidecarConfig& config = parsed.config;
  gantry::log::Configure("gantry-sidecar/" + config.name,
                         *gantry::log::ParseLevel(config.log_level));
  gantry::rpc::TakeGrpcLog();
  KeepLargeBlocks();
  std::set_terminate(EndWithoutReturn);
  const sigset_t signals = BlockStopSignals();

  gantry::PodStanding standing = gantry::ExaminePod(config);
  if (AnyFatal(standing.findings)) {
    SayWhyItEnds(FatalText(standing.findings));
    return gantry::kExitUsage;
  }
  gantry::rpc::KeepGrpc();
  gantry::Result<std::unique_ptr<gantry::SidecarApp>> app =
      WatchTheStop(std::chrono::milliseconds(config.shutdown_ms)).and_then([&] {
        return gantry::SidecarApp::Start(config, std::move(standing));
      });
  if (!app) {
    const std::string& hint = app.error().hint;
    SayWhyItEnds("the sidecar cannot start: " + app.error().message +
                 (hint.empty() ? "" : ". " + hint));
    gantry::log::Error("the sidecar cannot start",
                       {{"error", app.error()}, {"hint", app.error().hint}});
    return 1;
  }
  gantry::log::Info("the sidecar is ready",
                    {{"version", gantry::Version()}, {"run_dir", config.run_dir}});
  int signal = 0;
  ::sigwait(&signals, &signal);
  gantry::log::Info("the sidecar stops", {{"signal", signal}});
  StopBegins().release();
  app->reset();
  gantry::log::Info("the sidecar has stopped");
  return 0;
}
