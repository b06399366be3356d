// The copy workers of a pool, their GPUs, and calls that reach a worker from any thread.
// Implemented by WorkerPool and by a fake. Thread-safe.
#pragma once

#include <string_view>

namespace gantry::worker {

class CopyWorkers {
 public:
  virtual ~CopyWorkers() = default;
  virtual int worker_count() const = 0;
  // Index of the GPU that the worker's context is on, among the pool's GPUs; -1: none. Only workers
  // with a GPU take jobs with GPU memory.
  virtual int gpu_of(int worker) const = 0;
  // Whether the worker's kernels may access this GPU's memory; copy engines always can.
  virtual bool reaches(int worker, int gpu) const = 0;
  // Index of the GPU with this UUID; -1: the pool does not see it.
  virtual int GpuPlace(std::string_view uuid) const = 0;
  // Kills a worker that does not respond. Its jobs complete with kWorkerLost when it is reaped, and
  // a new worker replaces it.
  virtual void Replace(int worker) = 0;
  // Hint: wakes this worker if it sleeps, before much work is posted.
  virtual void WakeWorker(int worker) = 0;
};

}  // namespace gantry::worker
