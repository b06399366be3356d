#include "bench/bench_sidecars.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "gantryctl/exit_code.h"
#include "gantryctl/json_field.h"
#include "gantryctl/sidecar_http.h"
#include "lib/base/clock.h"
#include "lib/base/thread.h"
#include "lib/base/unique_fd.h"

namespace gantry::bench {
namespace {

using gantryctl::kExitInterrupted;
using gantryctl::SidecarHttp;
using gantryctl::TextOf;

constexpr milliseconds kReadyMax{15'000};
constexpr milliseconds kEndMax{5'000};
constexpr pid_t kEnded = 0;  // a child that is no more; kill(0) would be for this process
constexpr size_t kLogTailBytes = 2'000;

sigset_t EndingSignals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGHUP);
  return set;
}

Result<std::string> FindSidecar(const std::string& named) {
  std::string binary = named;
  if (binary.empty()) {
    std::error_code error;
    const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
    binary = (self.parent_path() / "gantry-sidecar").string();
  }
  if (access(binary.c_str(), X_OK) == 0) return binary;
  return Fail(ErrorCode::kNotFound, "there is no sidecar to run at " + binary,
              "build it, or name it with --sidecar");
}

// In the child: only calls that are safe between fork and exec.
[[noreturn]] void BecomeSidecar(char* const* arguments, int log, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);
  const sigset_t set = EndingSignals();
  sigprocmask(SIG_UNBLOCK, &set, nullptr);
  dup2(log, STDOUT_FILENO);
  dup2(log, STDERR_FILENO);
  setpgid(0, 0);  // Ctrl-C reaches gantry-bench alone, which ends its children in order
  execv(arguments[0], arguments);
  _exit(127);
}

// True when the child has ended within the time.
bool AwaitEnd(pid_t child, milliseconds time) {
  const TimePoint deadline = Clock::now() + time;
  for (;;) {
    if (waitpid(child, nullptr, WNOHANG) != 0) return true;
    if (Clock::now() >= deadline) return false;
    std::this_thread::sleep_for(milliseconds(5));
  }
}

}  // namespace

BenchSidecars::BenchSidecars(std::string folder, bool keep)
    : folder_(std::move(folder)), keep_(keep) {}

Result<std::unique_ptr<BenchSidecars>> BenchSidecars::Start(const BenchOptions& options) {
  ASSIGN_OR_RETURN(const std::string binary, FindSidecar(options.sidecar));
  const sigset_t set = EndingSignals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);

  std::string folder = options.temporary_folder + "/gantry-bench-XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) {
    return Fail(
        SystemError(ErrorCode::kInternal, "making a folder in " + options.temporary_folder, errno));
  }
  std::unique_ptr<BenchSidecars> sidecars(new BenchSidecars(folder, options.keep));
  if (mkdir((folder + "/node").c_str(), 0700) != 0) {
    return Fail(SystemError(ErrorCode::kInternal, "mkdir", errno));
  }
  for (int i = 0; i < 2; ++i) RETURN_IF_ERROR(sidecars->Launch(i, options, binary));
  ASSIGN_OR_RETURN(sidecars->interrupt_watch_,
                   StartThread("gantry-bench", [raw = sidecars.get()](const std::stop_token& stop) {
                     raw->AwaitInterrupt(stop);
                   }));
  for (int i = 0; i < 2; ++i) RETURN_IF_ERROR(sidecars->AwaitReady(i));
  return sidecars;
}

BenchSidecars::~BenchSidecars() {
  interrupt_watch_.request_stop();
  if (interrupt_watch_.joinable()) interrupt_watch_.join();
  End();
}

std::string BenchSidecars::RunFolder(int index) const { return folder_ + "/" + kNames[index]; }

Result<std::string> BenchSidecars::PeerAddress(int index) const {
  SidecarHttp http(ApiSocket(index));
  ASSIGN_OR_RETURN(const nlohmann::json status, http.GetJson("/v1/status"));
  return TextOf(status, "peer_address");
}

Result<nlohmann::json> BenchSidecars::CopyCosts(int index) const {
  SidecarHttp http(ApiSocket(index));
  ASSIGN_OR_RETURN(const nlohmann::json status, http.GetJson("/v1/status"));
  nlohmann::json costs = nlohmann::json::object();
  for (const nlohmann::json& gpu : MemberOf(status, "gpus")) {
    costs[TextOf(gpu, "uuid")] = MemberOf(gpu, "copy_costs");
  }
  return costs;
}

std::string BenchSidecars::LogTail(int index) const {
  std::ifstream file(RunFolder(index) + "/log");
  std::string text((std::istreambuf_iterator<char>(file)), {});
  if (text.size() > kLogTailBytes) text.erase(0, text.size() - kLogTailBytes);
  return text;
}

Status BenchSidecars::Launch(int index, const BenchOptions& options, const std::string& binary) {
  const std::string run = RunFolder(index);
  if (mkdir(run.c_str(), 0700) != 0) {
    return Fail(SystemError(ErrorCode::kInternal, "mkdir " + run, errno));
  }
  const UniqueFd log(open((run + "/log").c_str(), O_CREAT | O_WRONLY | O_CLOEXEC | O_APPEND, 0600));
  std::vector<std::string> words = {binary,
                                    "--name",
                                    kNames[index],
                                    "--run-dir",
                                    run,
                                    "--workers",
                                    std::to_string(options.workers),
                                    "--gpu-workers",
                                    std::to_string(options.workers),
                                    "--gpu-copies",
                                    options.gpu_copies,
                                    "--spin-us",
                                    std::to_string(options.spin_us),
                                    "--log-level",
                                    "info"};
  if (options.transport == "rdma") {
    words.insert(words.end(), {"--peer-listen", "127.0.0.1:0"});
  } else if (options.transport == "tcp") {
    words.insert(words.end(), {"--peer-listen", "127.0.0.1:0", "--data-streams",
                               std::to_string(options.streams)});
    if (!options.checksum) words.emplace_back("--data-no-checksum");
  } else {
    words.insert(words.end(), {"--node-dir", folder_ + "/node"});
  }
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);

  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) return Fail(SystemError(ErrorCode::kResourceExhausted, "fork", errno));
  if (child == 0) BecomeSidecar(arguments.data(), log.get(), parent);
  const MutexLock lock(mutex_);
  children_.push_back(child);
  return {};
}

Status BenchSidecars::AwaitReady(int index) {
  const TimePoint deadline = Clock::now() + kReadyMax;
  std::string last = "no answer";
  for (;;) {
    {
      const MutexLock lock(mutex_);
      pid_t& child = children_[static_cast<size_t>(index)];
      if (waitpid(child, nullptr, WNOHANG) != 0) {
        child = kEnded;
        return Fail(ErrorCode::kInternal, std::string("the sidecar '") + kNames[index] +
                                              "' ended at once:\n" + LogTail(index));
      }
    }
    SidecarHttp http(ApiSocket(index), milliseconds(1'000));
    const auto answer = http.Get("/readyz");
    if (answer && answer->status == 200) return {};
    if (answer) last = answer->body;
    if (Clock::now() >= deadline) {
      return Fail(ErrorCode::kDeadlineExceeded,
                  std::string("the sidecar '") + kNames[index] + "' is not ready after " +
                      std::to_string(kReadyMax.count()) + " ms: " + last + "\n" + LogTail(index));
    }
    std::this_thread::sleep_for(milliseconds(20));
  }
}

void BenchSidecars::End() {
  const MutexLock lock(mutex_);
  for (const pid_t child : children_) {
    if (child != kEnded) kill(child, SIGTERM);
  }
  for (const pid_t child : children_) {
    if (child == kEnded || AwaitEnd(child, kEndMax)) continue;
    kill(child, SIGKILL);
    AwaitEnd(child, kEndMax);
  }
  children_.clear();
  std::error_code ignored;
  if (!keep_) std::filesystem::remove_all(folder_, ignored);
}

void BenchSidecars::AwaitInterrupt(const std::stop_token& stop) {
  const sigset_t set = EndingSignals();
  while (!stop.stop_requested()) {
    const timespec step{0, 50'000'000};
    if (sigtimedwait(&set, nullptr, &step) < 0) continue;
    End();
    _exit(kExitInterrupted);
  }
}

}  // namespace gantry::bench
