// gantry-sidecar: becomes a copy worker when told to, else reads its settings, starts the
// application and waits for SIGTERM or SIGINT.
#include <malloc.h>
#include <signal.h>

#include <cstdint>
#include <cstdlib>
#include <exception>
#include <string>
#include <string_view>
#include <utility>

#include "lib/base/log.h"
#include "lib/base/version.h"
#include "lib/process/standard_fds.h"
#include "lib/process/stop_signal.h"
#include "lib/rpc/grpc_log.h"
#include "lib/rpc/grpc_threads.h"
#include "sidecar/app/pod_standing.h"
#include "sidecar/app/sidecar_app.h"
#include "sidecar/app/sidecar_config.h"
#include "sidecar/pod/termination_message.h"
#include "sidecar/worker/process/copy_worker.h"

namespace {

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

// Before the process ends by force; copy workers die with it.
void SayThatItDidNotStop(uint64_t shutdown_ms) {
  gantry::log::Error("the sidecar did not stop in time and ends by force");
  SayWhyItEnds("the sidecar did not stop within " + std::to_string(shutdown_ms) +
               " ms of SIGTERM (--shutdown-ms) and ended by force");
  gantry::log::Flush();
}

int SayThatItCannotStart(const gantry::Error& why) {
  SayWhyItEnds("the sidecar cannot start: " + why.message +
               (why.hint.empty() ? "" : ". " + why.hint));
  gantry::log::Error("the sidecar cannot start", {{"error", why}, {"hint", why.hint}});
  return 1;
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
  gantry::log::Flush();
  std::abort();
}

}  // namespace

int main(int argc, char** argv) {
  gantry::OpenStandardFds();
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
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGXFSZ, SIG_IGN);  // a file above the limit is an error of its write
  const auto stop =
      gantry::StopSignal::Watch(gantry::milliseconds(config.shutdown_ms),
                                [ms = config.shutdown_ms] { SayThatItDidNotStop(ms); });
  if (!stop) return SayThatItCannotStart(stop.error());

  gantry::PodStanding standing = gantry::ExaminePod(config);
  if (AnyFatal(standing.findings)) {
    SayWhyItEnds(FatalText(standing.findings));
    return gantry::kExitUsage;
  }
  if (const auto kept = gantry::rpc::KeepGrpc(); !kept) return SayThatItCannotStart(kept.error());
  auto app = gantry::SidecarApp::Start(config, std::move(standing));
  if (!app) return SayThatItCannotStart(app.error());
  gantry::log::Info("the sidecar is ready",
                    {{"version", gantry::Version()}, {"run_dir", config.run_dir}});
  gantry::log::Info("the sidecar stops", {{"signal", stop->Await()}});
  app->reset();
  gantry::log::Info("the sidecar has stopped");
  return 0;
}
