// What tests do to the worker processes of a pool. Stateless; thread-safe.
#pragma once

#include <signal.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "sidecar/worker/pool/worker_pool.h"

namespace gantry::worker {

// The state letter of proc(5).
inline char StateOf(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(file, text);
  const size_t name_end = text.rfind(')');
  return name_end + 2 < text.size() ? text[name_end + 2] : '?';
}

inline void SignalWorkers(const WorkerPool& pool, int signal, int count) {
  for (const WorkerStatus& worker : pool.workers()) {
    if (count-- > 0 && worker.pid > 0) ::kill(worker.pid, signal);
  }
}

inline void StopWorkers(const WorkerPool& pool) {
  SignalWorkers(pool, SIGSTOP, pool.worker_count());
  for (const WorkerStatus& worker : pool.workers()) {
    while (StateOf(worker.pid) != 'T') ::usleep(1000);
  }
}

}  // namespace gantry::worker
