#include "sidecar/worker/pool/worker_process.h"

#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>
#include <vector>

#include "lib/base/fd_passing.h"
#include "lib/base/poll_fd.h"
#include "lib/base/thread.h"
#include "sidecar/worker/process/copy_worker.h"

namespace gantry::worker {
namespace {

// The descriptors' numbers in the child must not be among those that are copied from.
constexpr int kSafeFdMin = 16;

// glibc 2.36 declares its wrappers of these without extern "C".
int PidfdOpen(pid_t pid) { return static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)); }

struct SpawnAttributes {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;

  SpawnAttributes() {
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawnattr_init(&attributes);
  }
  SpawnAttributes(const SpawnAttributes&) = delete;
  SpawnAttributes& operator=(const SpawnAttributes&) = delete;
  ~SpawnAttributes() {
    ::posix_spawnattr_destroy(&attributes);
    ::posix_spawn_file_actions_destroy(&actions);
  }
};

// Default signals, an empty mask, and a process group of its own: the Ctrl-C that asks the sidecar
// to drain must not end the workers.
void SetAttributes(posix_spawnattr_t* attributes) {
  sigset_t none;
  sigset_t all;
  ::sigemptyset(&none);
  ::sigfillset(&all);
  ::posix_spawnattr_setsigmask(attributes, &none);
  ::posix_spawnattr_setsigdefault(attributes, &all);
  ::posix_spawnattr_setpgroup(attributes, 0);
  ::posix_spawnattr_setflags(
      attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
}

Result<UniqueFd> CopyToSafeNumber(int fd) {
  UniqueFd copy(::fcntl(fd, F_DUPFD_CLOEXEC, kSafeFdMin));
  if (!copy.valid()) return Fail(SystemError(ErrorCode::kResourceExhausted, "dup", errno));
  return copy;
}

Result<pid_t> SpawnWith(const WorkerProcess::Options& options, std::array<int, 3> fds) {
  std::array<UniqueFd, 3> safe;
  SpawnAttributes spawn;
  for (size_t i = 0; i < fds.size(); ++i) {
    ASSIGN_OR_RETURN(safe[i], CopyToSafeNumber(fds[i]));
    ::posix_spawn_file_actions_adddup2(&spawn.actions, safe[i].get(),
                                       kControlFd + static_cast<int>(i));
  }
  ::posix_spawn_file_actions_addclosefrom_np(&spawn.actions, kFirstFreeFd);
  SetAttributes(&spawn.attributes);
  std::array<std::string, 7> words = {"gantry-sidecar",
                                      std::string(kCopyWorkerFlag),
                                      std::to_string(options.index),
                                      std::to_string(options.gpu_workers),
                                      options.without_driver ? "1" : "0",
                                      std::to_string(options.spin.count()),
                                      options.log_level};
  std::array<char*, 8> arguments = {};
  std::transform(words.begin(), words.end(), arguments.begin(),
                 [](std::string& word) { return word.data(); });
  pid_t pid = -1;
  const int error = ::posix_spawn(&pid, options.executable.c_str(), &spawn.actions,
                                  &spawn.attributes, arguments.data(), environ);
  if (error != 0) {
    Error refused = SystemError(ErrorCode::kResourceExhausted,
                                "starting a copy worker from " + options.executable, error);
    refused.hint = NoThread("gantry-copying", refused.message).hint;
    return Fail(std::move(refused));
  }
  return pid;
}

Error LostError(const WorkerProcess& process, const std::string& why) {
  return Error(ErrorCode::kWorkerLost,
               "copy worker with pid " + std::to_string(process.pid()) + " " + why);
}

std::string SaidBy(const WorkerAnswer& answer) {
  return {answer.message, ::strnlen(answer.message, sizeof(answer.message))};
}

// Takes the answer that has arrived; false when it belongs to no request that is waited for.
void TakeAnswer(WorkerReply* reply, uint64_t number) {
  WorkerAnswer answer;
  auto message = ReceiveMessage(reply->process->control(), sizeof(answer));
  const bool understood = message && !message->closed && ParseMessage(message->payload, &answer);
  if (!understood || answer.number != number) {
    reply->lost = true;
    reply->status = Fail(LostError(*reply->process, "went away during the request"));
    return;
  }
  reply->status = StatusOf(answer);
  if (reply->status) reply->said = SaidBy(answer);
}

// Collects one answer from each in `waiting`.
void Collect(std::vector<WorkerReply*> waiting, uint64_t number, Patience patience) {
  const TimePoint begin = Clock::now();
  const TimePoint last = begin + patience.longest;
  TimePoint deadline = last;
  while (!waiting.empty()) {
    std::vector<pollfd> sockets;
    sockets.reserve(waiting.size());
    for (const WorkerReply* reply : waiting) {
      sockets.push_back({reply->process->control(), POLLIN, 0});
    }
    const int ready = ::poll(sockets.data(), sockets.size(), MillisecondsUntil(deadline));
    if (ready < 0 && errno == EINTR) continue;
    std::vector<WorkerReply*> still_waiting;
    for (size_t i = 0; i < waiting.size(); ++i) {
      if (sockets[i].revents != 0) {
        TakeAnswer(waiting[i], number);
      } else if (ready > 0) {
        still_waiting.push_back(waiting[i]);
      } else {
        waiting[i]->lost = true;
        waiting[i]->late = true;
        waiting[i]->status = Fail(LostError(*waiting[i]->process, "did not answer in time"));
      }
    }
    waiting = std::move(still_waiting);
    const TimePoint now = Clock::now();
    const nanoseconds lag = std::max<nanoseconds>(patience.lag, 4 * (now - begin));
    if (ready > 0) deadline = std::min(last, now + lag);
  }
}

}  // namespace

Result<std::shared_ptr<WorkerProcess>> WorkerProcess::Spawn(const Options& options,
                                                            const UniqueFd& ring,
                                                            const UniqueFd& doorbell) {
  ASSIGN_OR_RETURN(auto ends, SocketPair(SOCK_SEQPACKET));
  UniqueFd ours = std::move(ends[0]);
  const UniqueFd theirs = std::move(ends[1]);
  ASSIGN_OR_RETURN(const pid_t pid, SpawnWith(options, {theirs.get(), ring.get(), doorbell.get()}));
  UniqueFd pidfd(PidfdOpen(pid));
  if (!pidfd.valid()) {
    const Error error = SystemError(ErrorCode::kResourceExhausted, "pidfd_open", errno);
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    return Fail(error);
  }
  return std::shared_ptr<WorkerProcess>(new WorkerProcess(pid, std::move(pidfd), std::move(ours)));
}

void WorkerProcess::Kill() const {
  ::syscall(SYS_pidfd_send_signal, pidfd_.get(), SIGKILL, nullptr, 0);
}

std::string WorkerProcess::Reap() const {
  siginfo_t info = {};
  int outcome = 0;
  do {
    outcome = ::waitid(P_PIDFD, static_cast<id_t>(pidfd_.get()), &info, WEXITED);
  } while (outcome != 0 && errno == EINTR);
  if (outcome != 0) return SystemError(ErrorCode::kInternal, "waitid", errno).message;
  if (info.si_code == CLD_EXITED) return "exit code " + std::to_string(info.si_status);
  return "signal " + std::to_string(info.si_status);
}

void Exchange(std::span<WorkerReply> replies, const WorkerRequest& request, int fd,
              Patience patience) {
  const std::span<const int> fds = fd < 0 ? std::span<const int>() : std::span<const int>(&fd, 1);
  std::vector<WorkerReply*> waiting;
  for (WorkerReply& reply : replies) {
    reply.status = SendMessage(reply.process->control(), BytesOf(request), fds);
    reply.lost = !reply.status;
    if (!reply.lost) waiting.push_back(&reply);
  }
  Collect(std::move(waiting), request.number, patience);
}

void ExchangeInTurn(std::span<WorkerReply> replies, const WorkerRequest& request, int fd,
                    Patience patience) {
  const TimePoint last = Clock::now() + patience.longest;
  nanoseconds wait = patience.longest;
  for (size_t i = 0; i < replies.size(); ++i) {
    const TimePoint begin = Clock::now();
    const auto longest = std::chrono::ceil<milliseconds>(std::min<nanoseconds>(wait, last - begin));
    Exchange(replies.subspan(i, 1), request, fd, {std::max(longest, milliseconds(1)), {}});
    if (replies[i].late) {
      for (WorkerReply& other : replies.subspan(i + 1)) {
        other.status = Fail(ErrorCode::kWorkerLost, replies[i].status.error().message,
                            "the others were not asked: the workers are being replaced; try again");
      }
      return;
    }
    if (!replies[i].lost) wait = std::max<nanoseconds>(patience.lag, 4 * (Clock::now() - begin));
  }
}

Result<Greeting> TakeGreeting(WorkerProcess& process) {
  WorkerAnswer answer;
  const auto message = ReceiveMessage(process.control(), sizeof(answer));
  if (!message || message->closed || !ParseMessage(message->payload, &answer) ||
      answer.number != 0) {
    return Fail(LostError(process, "went away before it was ready"));
  }
  return GreetingOf(StatusOf(answer), SaidBy(answer));
}

}  // namespace gantry::worker
