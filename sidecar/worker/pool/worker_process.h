// One copy worker as a child process: started, talked to over its control socket, killed, reaped.
// Thread-safe, but Exchange is for one thread at a time.
#pragma once

#include <sys/types.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lib/base/clock.h"
#include "lib/base/unique_fd.h"
#include "sidecar/worker/channel/worker_greeting.h"
#include "sidecar/worker/channel/worker_message.h"

namespace gantry::worker {

class WorkerProcess {
 public:
  struct Options {
    int index = 0;
    int gpu_workers = 0;  // how many of the pool's have a context, or GpuDevices::kAutomatic
    bool without_driver = false;  // leaves the GPU's driver alone until it is asked to open its GPU
    std::string executable;
    nanoseconds spin{0};
    std::string log_level;
  };
  // The worker dies with the calling *thread*, which must therefore live as long as the pool.
  static Result<std::shared_ptr<WorkerProcess>> Spawn(const Options& options, const UniqueFd& ring,
                                                      const UniqueFd& doorbell);
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;

  pid_t pid() const { return pid_; }
  int pidfd() const { return pidfd_.get(); }  // readable once the worker is dead
  int control() const { return control_.get(); }

  void Kill() const;  // SIGKILL; harmless when it is dead already
  // Waits for its death and says how it ended. Called once, by the thread that spawned it.
  std::string Reap() const;

 private:
  WorkerProcess(pid_t pid, UniqueFd pidfd, UniqueFd control)
      : pid_(pid), pidfd_(std::move(pidfd)), control_(std::move(control)) {}

  const pid_t pid_;
  const UniqueFd pidfd_;
  const UniqueFd control_;
};

// One worker's part in an exchange. `lost`: it closed its socket, or did not answer in time; its
// status says which.
struct WorkerReply {
  WorkerProcess* process = nullptr;
  Status status;
  bool lost = false;
  bool late = false;      // lost, as it did not answer in time
  std::string said = {};  // with an answer that is well
};

// How long answers are waited for. Once a worker has answered, the others have `lag`, or four times
// as long as that one took when this is more: who then has not answered hangs.
struct Patience {
  milliseconds longest{0};  // in all
  milliseconds lag{0};
};

// Sends the request to all of them at once and collects the answers. `fd` goes along unless it is
// -1. The replies' other fields are set here.
void Exchange(std::span<WorkerReply> replies, const WorkerRequest& request, int fd,
              Patience patience);
// The same with one after another: each is asked when the one before has answered, in the same time
// altogether. Behind one that does not answer none is asked, and that is what their status says.
void ExchangeInTurn(std::span<WorkerReply> replies, const WorkerRequest& request, int fd,
                    Patience patience);
// The greeting of a worker that was just spawned, once its control socket is readable; an error
// when it was lost. Does not wait.
Result<Greeting> TakeGreeting(WorkerProcess& process);

}  // namespace gantry::worker
