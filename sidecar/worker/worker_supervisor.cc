#include "sidecar/worker/worker_supervisor.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "lib/base/log.h"

namespace gantry::worker {
namespace {

// After so many failed starts in a row a worker may do without a mapping that it cannot make, or a
// GPU whose context it cannot have; until then nobody gives up.
constexpr int kStrictStarts = 3;
// After so many it does not touch the GPU's driver, which may hang or end it.
constexpr int kStartsWithGpu = 2;

int PollTimeout(TimePoint until) {
  if (until == TimePoint::max()) return -1;
  const auto left = std::chrono::ceil<milliseconds>(until - Clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 1'000'000));
}

bool IsAlive(const WorkerProcess& process) {
  pollfd death = {process.pidfd(), POLLIN, 0};
  return ::poll(&death, 1, 0) == 0;
}

}  // namespace

WorkerSupervisor::WorkerSupervisor(const WorkerPoolOptions& options,
                                   const std::vector<std::unique_ptr<WorkerSlot>>& slots,
                                   const UniqueFd& doorbell, MappingDirectory* mappings,
                                   GpuHomes* homes, std::function<void()> changed)
    : options_(options),
      slots_(slots),
      doorbell_(doorbell),
      mappings_(*mappings),
      homes_(*homes),
      changed_(std::move(changed)),
      care_(slots.size()),
      failed_starts_(slots.size()) {}

WorkerSupervisor::~WorkerSupervisor() {
  {
    const MutexLock lock(mutex_);
    stop_ = true;
    condition_.NotifyAll();
  }
  Notify();
  // The first to end kills the workers, which ends what the second waits for.
  if (supervising_thread_.joinable()) supervising_thread_.join();
  if (completing_thread_.joinable()) completing_thread_.join();
}

Status WorkerSupervisor::Start() {
  event_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!event_.valid()) return Fail(SystemError(ErrorCode::kResourceExhausted, "eventfd", errno));
  for (Care& care : care_) care.backoff = options_.restart_backoff_min_ms;
  supervising_thread_ = std::thread([this] { Supervise(); });
  completing_thread_ = std::thread([this] { CompleteStarts(); });
  const auto all_usable = [this] {
    return std::all_of(slots_.begin(), slots_.end(),
                       [](const auto& slot) { return slot->state.load() == WorkerState::kUsable; });
  };
  MutexLock lock(mutex_);
  while (first_failure_ && !all_usable()) condition_.Wait(lock);
  return first_failure_;
}

void WorkerSupervisor::Settled() { Notify(); }

void WorkerSupervisor::Notify() const {
  const uint64_t one = 1;
  // Fails when the counter is full, and then it is readable all the same.
  if (event_.valid() && ::write(event_.get(), &one, sizeof(one)) < 0) return;
}

void WorkerSupervisor::Supervise() {
  ::prctl(PR_SET_NAME, "gantry-workers");
  while (!stop_.load()) {
    StartDue();
    AwaitEvent(NextStart());
  }
  EndAll();
}

// Sleeps until something happens to a worker or to the pool, and reaps the dead.
void WorkerSupervisor::AwaitEvent(TimePoint until) {
  std::vector<std::shared_ptr<WorkerProcess>> processes;
  std::vector<pollfd> watched = {{event_.get(), POLLIN, 0}};
  for (const std::unique_ptr<WorkerSlot>& slot : slots_) {
    processes.push_back(slot->process());
    const auto& process = processes.back();
    watched.push_back({process == nullptr ? -1 : process->pidfd(), POLLIN, 0});
  }
  if (::poll(watched.data(), watched.size(), PollTimeout(until)) <= 0) return;
  uint64_t count = 0;
  while (::read(event_.get(), &count, sizeof(count)) > 0) continue;
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (watched[i + 1].revents != 0) Reap(*slots_[i], *processes[i], &care_[i]);
  }
}

void WorkerSupervisor::Reap(WorkerSlot& slot, WorkerProcess& process, Care* care) {
  const std::string how = process.Reap();
  const TimePoint now = Clock::now();
  if (now - care->started > options_.restart_backoff_max_ms) {
    care->backoff = options_.restart_backoff_min_ms;
  }
  care->start_at = now + care->backoff;
  log::Warning("copy worker died", {{"worker", slot.index},
                                    {"pid", process.pid()},
                                    {"how", how},
                                    {"restart_in_ms", care->backoff.count()}});
  care->backoff = std::min(care->backoff * 2, options_.restart_backoff_max_ms);
  const bool was_usable = slot.SetReaped(how);
  if (!was_usable) {
    // Somebody's SIGKILL says nothing of the GPU's driver.
    if (how != "signal " + std::to_string(SIGKILL)) ++slot.lost_before_greeting;
    ReportFailedStart(slot, Error(ErrorCode::kWorkerLost,
                                  "copy worker " + std::to_string(slot.index) +
                                      " ended before it was ready: " + how,
                                  "its log lines say why"));
  }
  changed_();
}

TimePoint WorkerSupervisor::NextStart() const {
  TimePoint next = TimePoint::max();
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i]->state.load() == WorkerState::kSettled) next = std::min(next, care_[i].start_at);
  }
  return next;
}

void WorkerSupervisor::StartDue() {
  for (size_t i = 0; i < slots_.size(); ++i) {
    WorkerSlot& slot = *slots_[i];
    Care& care = care_[i];
    if (slot.state.load() != WorkerState::kSettled || care.start_at > Clock::now()) continue;
    const bool first_start = care.started == TimePoint();
    care.started = Clock::now();
    auto process = WorkerProcess::Spawn(
        {slot.index, slot.lost_before_greeting < kStartsWithGpu ? options_.gpu_workers : 0,
         options_.executable, options_.spin, options_.log_level},
        slot.ring_block.fd(), doorbell_);
    if (!process) {
      log::Error("copy worker cannot be started", {{"error", process.error()}});
      care.start_at = Clock::now() + care.backoff;
      care.backoff = std::min(care.backoff * 2, options_.restart_backoff_max_ms);
      ReportFailedStart(slot, std::move(process).error());
      continue;
    }
    if (!first_start) ++slot.restarts;
    slot.SetProcess(std::move(*process));
    const MutexLock lock(mutex_);
    starting_.push_back(&slot);
    condition_.NotifyAll();
  }
}

void WorkerSupervisor::EndAll() {
  for (const std::unique_ptr<WorkerSlot>& slot : slots_) {
    if (const auto process = slot->process()) process->Kill();
  }
  for (const std::unique_ptr<WorkerSlot>& slot : slots_) {
    const auto process = slot->process();
    if (process != nullptr) slot->SetReaped(process->Reap());
  }
}

void WorkerSupervisor::ReportFailedStart(const WorkerSlot& slot, Error error) {
  const MutexLock lock(mutex_);
  const bool gives_up = ++failed_starts_[static_cast<size_t>(slot.index)] >= kStrictStarts;
  if (gives_up && first_failure_) first_failure_ = Fail(std::move(error));
  condition_.NotifyAll();
}

void WorkerSupervisor::CompleteStarts() {
  ::prctl(PR_SET_NAME, "gantry-restore");
  while (true) {
    WorkerSlot* slot = nullptr;
    {
      MutexLock lock(mutex_);
      while (starting_.empty() && !stop_.load()) condition_.Wait(lock);
      if (stop_.load()) return;
      slot = starting_.front();
      starting_.erase(starting_.begin());
    }
    CompleteStart(*slot);
  }
}

Status WorkerSupervisor::SetUp(WorkerSlot& slot, WorkerProcess& process, bool tolerant) {
  const auto greeted = AwaitGreeting(process, options_.start_timeout_ms);
  if (!greeted) {
    if (IsAlive(process)) ++slot.lost_before_greeting;  // it hangs
    return Fail(greeted.error());
  }
  const Greeting& greeting = *greeted;
  slot.lost_before_greeting = 0;
  slot.gpu = homes_.Take(greeting);
  // That there is none to be had is no news; that a GPU refuses its context is. It may have room
  // again in a moment, for the successor of a worker that had one.
  if (!greeting.status && greeting.status.error().code != ErrorCode::kPathUnavailable) {
    if (homes_.gpus() && slot.restarts > 0 && !tolerant) return greeting.status;
    log::Warning("copy worker works without a GPU: the pool has one fewer for GPU memory",
                 {{"worker", slot.index}, {"why", greeting.status.error()}});
  }
  return mappings_.Restore(slot, process, tolerant);
}

void WorkerSupervisor::CompleteStart(WorkerSlot& slot) {
  const std::shared_ptr<WorkerProcess> process = slot.process();
  // It may have died meanwhile, and its successor be here twice.
  if (process == nullptr || slot.state != WorkerState::kStarting) return;
  bool tolerant = false;
  {
    const MutexLock lock(mutex_);
    tolerant = failed_starts_[static_cast<size_t>(slot.index)] >= kStrictStarts;
  }
  const Status status = SetUp(slot, *process, tolerant);
  if (!status) {
    log::Error("copy worker did not become ready",
               {{"worker", slot.index}, {"pid", process->pid()}, {"error", status.error()}});
    process->Kill();  // and is reaped, and started again
    return;
  }
  log::Info("copy worker ready",
            {{"worker", slot.index}, {"pid", process->pid()}, {"mappings", slot.mapped.load()}});
  {
    const MutexLock lock(mutex_);
    failed_starts_[static_cast<size_t>(slot.index)] = 0;
    condition_.NotifyAll();
  }
  changed_();
}

}  // namespace gantry::worker
