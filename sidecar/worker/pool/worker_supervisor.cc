#include "sidecar/worker/pool/worker_supervisor.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "lib/base/log.h"
#include "lib/base/thread.h"
#include "sidecar/worker/process/copy_worker.h"

namespace gantry::worker {
namespace {

// After so many failed starts in a row a worker may do without a mapping that it cannot make, or a
// GPU whose context it cannot have; until then nobody gives up.
constexpr int kStrictStarts = 3;
// After so many over which the GPU's driver may have hung or ended it, it starts without that.
constexpr int kStartsWithGpu = 2;
// A worker that asks for its GPU again: a context takes a second at most where the driver is well.
constexpr milliseconds kOpenGpuMax{10'000};
constexpr milliseconds kRefusedRetry{20};

int PollTimeout(TimePoint until) {
  if (until == TimePoint::max()) return -1;
  const auto left = std::chrono::ceil<milliseconds>(until - Clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 1'000'000));
}

void Drain(const UniqueFd& event) {
  uint64_t count = 0;
  while (::read(event.get(), &count, sizeof(count)) > 0) continue;
}

}  // namespace

WorkerSupervisor::WorkerSupervisor(const WorkerPoolOptions& options,
                                   const std::vector<std::unique_ptr<WorkerSlot>>& slots,
                                   const UniqueFd& doorbell, MappingDirectory* mappings,
                                   GpuRegistry* gpu_registry, std::function<void()> changed)
    : options_(options),
      slots_(slots),
      doorbell_(doorbell),
      mappings_(*mappings),
      gpu_registry_(*gpu_registry),
      changed_(std::move(changed)),
      care_(slots.size()),
      refused_(slots.size()),
      failed_starts_(slots.size()) {}

WorkerSupervisor::~WorkerSupervisor() {
  {
    const MutexLock lock(mutex_);
    stop_ = true;
    condition_.NotifyAll();
  }
  Notify(event_);
  Notify(starts_);
  // The first to end kills the workers, which ends what the second waits for.
  if (supervising_thread_.joinable()) supervising_thread_.join();
  if (completing_thread_.joinable()) completing_thread_.join();
}

Status WorkerSupervisor::Start() {
  for (UniqueFd* const event : {&event_, &starts_}) {
    event->reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!event->valid()) return Fail(SystemError(ErrorCode::kResourceExhausted, "eventfd", errno));
  }
  for (Care& care : care_) care.backoff = options_.restart_backoff_min_ms;
  ASSIGN_OR_RETURN(completing_thread_, StartThread("gantry-restore", [this] { CompleteStarts(); }));
  ASSIGN_OR_RETURN(supervising_thread_, StartThread("gantry-workers", [this] { Supervise(); }));
  const auto all_usable = [this] {
    return std::all_of(slots_.begin(), slots_.end(),
                       [](const auto& slot) { return slot->state.load() == WorkerState::kUsable; });
  };
  MutexLock lock(mutex_);
  while (first_failure_ && !all_usable()) condition_.Wait(lock);
  return first_failure_;
}

void WorkerSupervisor::Settled() { Notify(event_); }

void WorkerSupervisor::Notify(const UniqueFd& event) {
  const uint64_t one = 1;
  // Fails when the counter is full, and then it is readable all the same.
  if (event.valid() && ::write(event.get(), &one, sizeof(one)) < 0) return;
}

void WorkerSupervisor::Supervise() {
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
  Drain(event_);
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
    // Somebody's SIGKILL says nothing of the GPU's driver, nor does a want of threads.
    const bool no_thread = how == "exit code " + std::to_string(kExitNoThread);
    if (how != "signal " + std::to_string(SIGKILL) && !no_thread) ++slot.lost_before_greeting;
    Error why(ErrorCode::kWorkerLost,
              "copy worker " + std::to_string(slot.index) + " ended before it was ready: " + how,
              "its log lines say why");
    if (no_thread) why = NoThread("gantry-copying", why.message);
    ReportFailedStart(slot, std::move(why));
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
    const bool without_driver = DistrustsDriver(slot);
    auto process = WorkerProcess::Spawn({slot.index, options_.gpu_workers, without_driver,
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
    slot.SetProcess(*process);
    {
      const MutexLock lock(mutex_);
      starting_.push_back(
          {&slot, *process, care.started + options_.start_timeout_ms, without_driver});
    }
    Notify(starts_);
  }
}

bool WorkerSupervisor::DistrustsDriver(const WorkerSlot& slot) const {
  const bool has_turn = options_.gpu_workers < 0 || slot.index < options_.gpu_workers;
  return has_turn && slot.lost_before_greeting >= kStartsWithGpu;
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
  std::vector<Starting> awaited;
  while (!stop_.load()) {
    AwaitGreetings(&awaited);
    RetryGpus();
    const MutexLock lock(mutex_);
    std::move(starting_.begin(), starting_.end(), std::back_inserter(awaited));
    starting_.clear();
  }
}

void WorkerSupervisor::AwaitGreetings(std::vector<Starting>* awaited) {
  std::vector<pollfd> watched = {{starts_.get(), POLLIN, 0}};
  TimePoint until = NextGpuRetry();
  for (const Starting& start : *awaited) {
    watched.push_back({start.process->control(), POLLIN, 0});
    until = std::min(until, start.deadline);
  }
  ::poll(watched.data(), watched.size(), PollTimeout(until));
  // Completing a start takes as long as its mappings: another that greets meanwhile is not late.
  const TimePoint now = Clock::now();
  Drain(starts_);
  std::vector<Starting> still;
  for (size_t i = 0; i < awaited->size(); ++i) {
    const Starting& start = (*awaited)[i];
    if (watched[i + 1].revents != 0) {
      CompleteStart(start, TakeGreeting(*start.process));
    } else if (now >= start.deadline) {
      // It hangs. One that dies counts when it is reaped: that its socket is closed comes first.
      ++start.slot->lost_before_greeting;
      CompleteStart(start, Fail(ErrorCode::kWorkerLost, "copy worker with pid " +
                                                            std::to_string(start.process->pid()) +
                                                            " did not say in time that it is "
                                                            "ready"));
    } else {
      still.push_back(start);
    }
  }
  *awaited = std::move(still);
}

Status WorkerSupervisor::SetUp(const Starting& start, const Result<Greeting>& greeted,
                               bool tolerant) {
  if (!greeted) return Fail(greeted.error());
  WorkerSlot& slot = *start.slot;
  const Greeting& greeting = *greeted;
  if (!start.without_driver) slot.lost_before_greeting = 0;
  const WorkerGpu worker_gpu = gpu_registry_.Take(slot.index, greeting);
  // That there is none to be had is no news; that a GPU refuses its context is. It may have room
  // again in a moment, for the successor of a worker that had one.
  const bool refuses =
      !greeting.status && greeting.status.error().code != ErrorCode::kPathUnavailable;
  if (refuses && !start.without_driver && slot.gpu >= 0 && !tolerant) return greeting.status;
  slot.SetGpu(worker_gpu, greeting.status);
  refused_[static_cast<size_t>(slot.index)] = {};
  if (retrying_ == slot.index) retrying_ = -1;
  slot.asks_for_gpu = refuses;  // also to whoever sees it usable at once
  Status has_gpu;
  RETURN_IF_ERROR(mappings_.Restore(slot, *start.process, tolerant, &has_gpu));
  if (refuses) RetryGpuLater(slot, greeting.status.error(), start.without_driver);
  if (!has_gpu) RetryGpuLater(slot, has_gpu.error());
  return {};
}

void WorkerSupervisor::RetryGpuLater(WorkerSlot& slot, const Error& why, bool distrusts_driver) {
  Refused& refused = refused_[static_cast<size_t>(slot.index)];
  if (distrusts_driver) {
    refused.pause = options_.gpu_retry_max_ms;
  } else if (refused.pause.count() == 0) {
    refused.pause = options_.gpu_retry_min_ms;
  } else {
    refused.pause = std::min(2 * refused.pause, options_.gpu_retry_max_ms);
  }
  refused.again = Clock::now() + refused.pause;
  slot.asks_for_gpu = true;
  log::Warning("copy worker works without a GPU: the pool has one fewer for GPU memory",
               {{"worker", slot.index}, {"why", why}, {"asks_again_in_ms", refused.pause.count()}});
}

TimePoint WorkerSupervisor::NextGpuRetry() const {
  if (retrying_ >= 0) return refused_[static_cast<size_t>(retrying_)].again;
  TimePoint next = TimePoint::max();
  for (const Refused& refused : refused_) next = std::min(next, refused.again);
  return next;
}

// One at a time: a driver that hangs costs one worker after the other.
void WorkerSupervisor::RetryGpus() {
  const TimePoint now = Clock::now();
  if (NextGpuRetry() > now) return;
  if (retrying_ < 0) {
    const auto due = std::min_element(
        refused_.begin(), refused_.end(),
        [](const Refused& one, const Refused& other) { return one.again < other.again; });
    due->patience_ends = now + std::min(options_.map_timeout_ms, kOpenGpuMax);
    retrying_ = static_cast<int>(due - refused_.begin());
  }
  Refused& refused = refused_[static_cast<size_t>(retrying_)];
  refused.again = TimePoint::max();
  WorkerSlot& slot = *slots_[static_cast<size_t>(std::exchange(retrying_, -1))];
  const std::shared_ptr<WorkerProcess> process = slot.process();
  if (process == nullptr || slot.state.load() != WorkerState::kUsable) return;  // a new one asks
  Result<bool> opened = mappings_.OpenGpu(slot, *process, gpu_registry_);
  if (opened && !*opened && now < refused.patience_ends) {
    refused.again = Clock::now() + kRefusedRetry;
    retrying_ = slot.index;
    return;
  }
  if (opened && !*opened) {
    slot.End();
    opened = Fail(ErrorCode::kWorkerLost, "the GPU's driver did not answer it in time");
  }
  GpuRetried(slot, opened);
}

void WorkerSupervisor::GpuRetried(WorkerSlot& slot, const Result<bool>& opened) {
  if (!opened && opened.error().code == ErrorCode::kWorkerLost) {
    log::Warning("copy worker was replaced when it asked for its GPU again",
                 {{"worker", slot.index}, {"why", opened.error()}});
    return;
  }
  slot.lost_before_greeting = 0;  // the driver has answered
  if (!opened) {
    const Status why = Fail(opened.error());
    slot.SetGpu(gpu_registry_.Take(slot.index, {{}, {}, why}), why);
    // That there is none to be had does not change.
    if (opened.error().code != ErrorCode::kPathUnavailable) RetryGpuLater(slot, opened.error());
  } else if (slot.gpu >= 0) {
    log::Info("copy worker has a GPU again", {{"worker", slot.index}});
    changed_();
  }
}

void WorkerSupervisor::CompleteStart(const Starting& start, const Result<Greeting>& greeted) {
  WorkerSlot& slot = *start.slot;
  const std::shared_ptr<WorkerProcess>& process = start.process;
  if (slot.process() != process) return;  // it has died meanwhile
  bool tolerant = false;
  {
    const MutexLock lock(mutex_);
    tolerant = failed_starts_[static_cast<size_t>(slot.index)] >= kStrictStarts;
  }
  const Status status = SetUp(start, greeted, tolerant);
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
