// One copy worker as a child process: spawned, controlled over its socket, killed, reaped.
// Thread-safe, except that only one Exchange may run at a time.
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
    // The pool's number of workers with a context, or GpuDevices::kAutomatic.
    int gpu_workers = 0;
    // Does not load the GPU driver until it is asked to open its GPU.
    bool without_driver = false;
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
  // Waits for its death and returns how it ended. Call once, on the thread that spawned it.
  std::string Reap() const;

 private:
  WorkerProcess(pid_t pid, UniqueFd pidfd, UniqueFd control)
      : pid_(pid), pidfd_(std::move(pidfd)), control_(std::move(control)) {}

  const pid_t pid_;
  const UniqueFd pidfd_;
  const UniqueFd control_;
};

// One worker's part in an exchange. `lost`: it closed its socket, or did not answer in time;
// `status` says which.
struct WorkerReply {
  WorkerProcess* process = nullptr;
  Status status;
  bool lost = false;
  bool late = false;      // lost because it did not answer in time
  std::string said = {};  // text of a successful answer
};

// Timeouts for answers. After the first answer the others get `lag`, or four times the first one's
// time if that is longer. A worker without an answer by then hangs.
struct Patience {
  milliseconds longest{0};  // in all
  milliseconds lag{0};
};

// Sends the request to all workers at once and collects the answers. `fd` is sent along unless it
// is -1. Sets all fields of the replies except `process`.
void Exchange(std::span<WorkerReply> replies, const WorkerRequest& request, int fd,
              Patience patience);
// The same, one worker after another, within the same total time. After a worker that does not
// answer, no further one is asked; their status says so.
void ExchangeInTurn(std::span<WorkerReply> replies, const WorkerRequest& request, int fd,
                    Patience patience);
// Reads the greeting of a new worker, once its control socket is readable. Fails when the worker
// was lost. Never blocks.
Result<Greeting> TakeGreeting(WorkerProcess& process);

}  // namespace gantry::worker
