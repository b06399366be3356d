#include "sidecar/worker/pool/worker_slot.h"

namespace gantry::worker {

std::string_view NameOf(WorkerState state) {
  switch (state) {
    case WorkerState::kStarting:
      return "starting";
    case WorkerState::kUsable:
      return "usable";
    case WorkerState::kEnding:
      return "ending";
    case WorkerState::kReaped:
      return "reaped";
    case WorkerState::kSettled:
      break;
  }
  return "waiting";
}

std::shared_ptr<WorkerProcess> WorkerSlot::process() const {
  const MutexLock lock(mutex);
  return current;
}

void WorkerSlot::SetProcess(std::shared_ptr<WorkerProcess> process) {
  const MutexLock lock(mutex);
  current = std::move(process);
  mapped = 0;
  state = WorkerState::kStarting;
}

void WorkerSlot::SetGpu(const WorkerGpu& worker_gpu, const Status& why_none) {
  const MutexLock lock(mutex);
  gpu_reached = worker_gpu.reached;
  gpu = worker_gpu.place;
  gpu_memory = worker_gpu.memory;
  asks_for_gpu = false;
  no_gpu_because = why_none ? "" : why_none.error().message;
}

bool WorkerSlot::BecomeUsable(const WorkerProcess& process) {
  const MutexLock lock(mutex);
  if (current.get() != &process) return false;
  state = WorkerState::kUsable;
  return true;
}

bool WorkerSlot::End() {
  const MutexLock lock(mutex);
  if (state != WorkerState::kUsable) return false;
  state = WorkerState::kEnding;
  current->Kill();
  return true;
}

bool WorkerSlot::SetReaped(std::string how) {
  const MutexLock lock(mutex);
  const bool was_usable = state != WorkerState::kStarting;
  current = nullptr;
  mapped = 0;
  last_exit = std::move(how);
  state = was_usable ? WorkerState::kReaped : WorkerState::kSettled;
  return was_usable;
}

}  // namespace gantry::worker
