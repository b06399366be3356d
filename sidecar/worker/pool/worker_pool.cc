#include "sidecar/worker/pool/worker_pool.h"

#include <algorithm>
#include <sstream>
#include <string>
#include <thread>
#include <utility>

#include "lib/base/log.h"
#include "sidecar/worker/channel/shared_costs.h"

namespace gantry::worker {
namespace {

constexpr int kWorkersMax = 64;
constexpr milliseconds kReadyCheck{5};
// Until a worker that has to go has a successor; shorter than callers wait.
constexpr milliseconds kNewPidMax{5'000};

}  // namespace

Result<std::unique_ptr<WorkerPool>> WorkerPool::Create(WorkerPoolOptions options) {
  if (options.workers < 1 || options.workers > kWorkersMax) {
    return Fail(ErrorCode::kInvalidArgument, "a pool has 1 to " + std::to_string(kWorkersMax) +
                                                 " copy workers, not " +
                                                 std::to_string(options.workers));
  }
  ASSIGN_OR_RETURN(SharedBlock doorbell, SharedBlock::Create("gantry-doorbell", sizeof(Doorbell)));
  std::vector<std::unique_ptr<WorkerSlot>> slots;
  for (int i = 0; i < options.workers; ++i) {
    ASSIGN_OR_RETURN(SharedBlock ring, SharedBlock::Create("gantry-ring", sizeof(RingLayout)));
    if (options.measures_costs && options.costs.WantMeasured()) {
      WantCosts(static_cast<RingLayout*>(ring.data()));
    }
    slots.push_back(std::make_unique<WorkerSlot>(i, std::move(ring)));
  }
  std::unique_ptr<WorkerPool> pool(
      new WorkerPool(std::move(options), std::move(doorbell), std::move(slots)));
  RETURN_IF_ERROR(pool->supervisor_.Start());
  return pool;
}

WorkerPool::WorkerPool(WorkerPoolOptions options, SharedBlock doorbell,
                       std::vector<std::unique_ptr<WorkerSlot>> slots)
    : MemoryMapper(options.unsealed),
      options_(std::move(options)),
      spin_(options_.spin),
      doorbell_block_(std::move(doorbell)),
      doorbell_(static_cast<Doorbell*>(doorbell_block_.data())),
      slots_(std::move(slots)),
      mappings_(slots_, {options_.map_timeout_ms, options_.map_lag_ms}),
      // A worker that died may have taken a wake-up with it, so this one is unconditional.
      supervisor_(options_, slots_, doorbell_block_.fd(), &mappings_, &gpu_registry_, [this] {
        wake_requested_ = true;
        RingDoorbell(doorbell_);
      }) {}

WorkerPool::~WorkerPool() = default;

bool WorkerPool::usable(int worker) const {
  const WorkerSlot& slot = *slots_[static_cast<size_t>(worker)];
  return slot.state.load() == WorkerState::kUsable && !slot.distrusted;
}

// Every job needs a place in the completion ring.
bool WorkerPool::TakesJobs(int worker) const {
  return usable(worker) && slots_[static_cast<size_t>(worker)]->in_flight.size() < kCompletionSlots;
}

size_t WorkerPool::free_slots(int worker) const {
  return TakesJobs(worker) ? slots_[static_cast<size_t>(worker)]->ring.free_slots() : 0;
}

size_t WorkerPool::free_places(int worker) const {
  return usable(worker) ? slots_[static_cast<size_t>(worker)]->ring.free_places() : 0;
}

bool WorkerPool::Post(int worker, uint64_t tag, std::span<const CopySegment> segments) {
  WorkerSlot& slot = *slots_[static_cast<size_t>(worker)];
  if (!TakesJobs(worker) || !slot.ring.Submit(tag, segments)) return false;
  slot.in_flight.push_back(tag);
  return true;
}

size_t WorkerPool::Poll(std::span<Completion> completions) {
  size_t taken = 0;
  for (size_t i = 0; i < slots_.size() && taken < completions.size(); ++i) {
    WorkerSlot& slot = *slots_[(first_to_poll_ + i) % slots_.size()];
    taken += PollWorker(slot, completions.subspan(taken));
  }
  first_to_poll_ = (first_to_poll_ + 1) % slots_.size();
  return taken;
}

size_t WorkerPool::PollWorker(WorkerSlot& slot, std::span<Completion> completions) {
  // Before the ring is read: what a reaped worker completed is then all there.
  const bool reaped = slot.state.load() == WorkerState::kReaped;
  size_t taken = 0;
  const bool drained = TakeCompletions(slot, completions, &taken);
  slot.jobs_done += taken;
  if (!reaped || !drained) return taken;
  while (taken < completions.size() && !slot.in_flight.empty()) {
    completions[taken++] = {slot.in_flight.front(), slot.index, false, ErrorCode::kWorkerLost, 0};
    slot.in_flight.pop_front();
    ++slot.jobs_lost;
  }
  if (!slot.in_flight.empty()) return taken;
  slot.ring = PoolRingEnd(InitializeRing(slot.ring_block.data()));
  slot.distrusted = false;
  slot.state = WorkerState::kSettled;
  supervisor_.Settled();
  return taken;
}

// True when nothing more is to be had from the worker's ring.
bool WorkerPool::TakeCompletions(WorkerSlot& slot, std::span<Completion> completions,
                                 size_t* taken) {
  while (!slot.distrusted) {
    if (*taken == completions.size()) return false;
    Completion& completion = completions[*taken];
    const RingTake take = slot.ring.TakeCompletion(&completion);
    if (take == RingTake::kEmpty) {
      if (slot.ring.corrupt()) Distrust(slot, "its submission index");
      return true;
    }
    if (take == RingTake::kCorrupt) {
      Distrust(slot, "a completion");
    } else if (slot.in_flight.empty() || slot.in_flight.front() != completion.tag) {
      Distrust(slot, "a completion of a job that is not its next");
    } else {
      completion.worker = slot.index;
      slot.in_flight.pop_front();
      ++*taken;
    }
  }
  return true;
}

void WorkerPool::Distrust(WorkerSlot& slot, std::string_view why) {
  slot.distrusted = true;
  log::Error("copy worker corrupted its ring and is replaced",
             {{"worker", slot.index}, {"what", why}});
  slot.End();
}

bool WorkerPool::SomethingToPoll() const {
  if (wake_requested_.load()) return true;
  return std::any_of(slots_.begin(), slots_.end(), [](const auto& slot) {
    return slot->state.load() == WorkerState::kReaped ||
           (!slot->distrusted && slot->ring.HasCompletion());
  });
}

void WorkerPool::Wait(TimePoint deadline, Mutex* driver) {
  const auto ready = [this] { return SomethingToPoll(); };
  // With nothing under way the thread that brings something drives it.
  const bool idle = std::all_of(slots_.begin(), slots_.end(),
                                [](const auto& slot) { return slot->in_flight.empty(); });
  if (idle || !spin_.Until(ready, deadline)) {
    const uint32_t sequence = doorbell_->sequence.value.load();
    sleeper_ = Sleeper::kWaits;
    RequestWakeUps();
    waiter_sleeps_ = true;
    if (!ready()) Sleep(sequence, deadline, driver);
    waiter_sleeps_ = false;
    CancelWakeUps();
    sleeper_ = Sleeper::kNone;
  }
  wake_requested_ = false;
}

void WorkerPool::WaitIgnoringCompletions(TimePoint deadline, Mutex* driver) {
  const uint32_t sequence = doorbell_->sequence.value.load();
  sleeper_ = Sleeper::kIgnoresCompletions;
  waiter_sleeps_ = true;
  if (!wake_requested_.load()) Sleep(sequence, deadline, driver);
  waiter_sleeps_ = false;
  sleeper_ = Sleeper::kNone;
  wake_requested_ = false;
}

// Another may drive meanwhile; the doorbell's number tells whether it rang since it was read.
void WorkerPool::Sleep(uint32_t sequence, TimePoint deadline,
                       Mutex* driver) NO_THREAD_SAFETY_ANALYSIS {
  driver->unlock();
  FutexWait(doorbell_->sequence.value, sequence, deadline);
  driver->lock();
}

void WorkerPool::WakeWaiter() {
  wake_requested_ = true;
  if (waiter_sleeps_.load()) RingDoorbell(doorbell_);
}

void WorkerPool::BeginDriving() {
  waiter_sleeps_ = false;
  if (sleeper_ == Sleeper::kWaits) CancelWakeUps();
}

void WorkerPool::EndDriving(bool wake) {
  if (sleeper_ == Sleeper::kNone) return;  // it is awake, and comes next
  if (sleeper_ == Sleeper::kWaits) RequestWakeUps();
  waiter_sleeps_ = true;
  const bool something = sleeper_ == Sleeper::kWaits ? SomethingToPoll() : wake_requested_.load();
  if (wake || something) RingDoorbell(doorbell_);
}

void WorkerPool::RequestWakeUps() {
  for (const auto& slot : slots_) slot->ring.RequestWake();
}

void WorkerPool::CancelWakeUps() {
  for (const auto& slot : slots_) slot->ring.CancelWake();
}

void WorkerPool::Replace(int worker) { slots_[static_cast<size_t>(worker)]->End(); }

Result<memory::MappingId> WorkerPool::Map(const memory::AllocationSource& source) {
  if (source.kind == wire::MemoryKind::kGpu) {
    const bool any = std::any_of(slots_.begin(), slots_.end(),
                                 [](const auto& slot) { return slot->gpu.load() >= 0; });
    if (!any) {
      const Status gpus = gpu_registry_.HasGpus();
      return gpus ? Fail(NoGpuWorkers())
                  : Fail(ErrorCode::kPathUnavailable, gpus.error().message, gpus.error().hint);
    }
  }
  const bool on_gpu = source.kind == wire::MemoryKind::kGpu;
  const gpu::SharingRules rules = gpu_registry_.sharing();
  // It might wait for ever, or find another process of the same number.
  if (source.of_peer && memory::IsByHandle(source) && rules.handles_stay_in_pod) {
    return Fail(ErrorCode::kPathUnavailable,
                "the memory is shared by a handle, which this GPU's driver opens within its "
                "owner's pod alone",
                "use a driver that exports dma-bufs, or virtual memory: both reach other pods");
  }
  if (memory::IsByHandle(source)) RETURN_IF_ERROR(LeavePid(source.gpu.exporter_pid));
  return mappings_.Map(source, on_gpu && rules.one_attach_at_a_time);
}

// The GPU's driver lets no two processes whose PIDs have the same number share memory, each in its
// own namespace: a worker with this one makes room for one with another.
Status WorkerPool::LeavePid(int64_t pid) {
  const TimePoint deadline = Clock::now() + kNewPidMax;
  for (const std::unique_ptr<WorkerSlot>& slot : slots_) {
    bool said = false;
    for (;;) {
      const std::shared_ptr<WorkerProcess> process = slot->process();
      if (process == nullptr || process->pid() != pid) break;
      if (!std::exchange(said, true)) {
        log::Warning("copy worker has the PID of an owner of GPU memory, and is replaced",
                     {{"worker", slot->index}, {"pid", pid}});
      }
      if (slot->End()) ++pid_conflicts_;  // nothing happens until it is usable
      if (Clock::now() >= deadline) {
        return Fail(ErrorCode::kWorkerLost,
                    "copy worker " + std::to_string(slot->index) + " has the PID " +
                        std::to_string(pid) +
                        " that the owner of the GPU memory has in its own namespace, and was not "
                        "replaced by one with another",
                    "try again");
      }
      std::this_thread::sleep_for(kReadyCheck);
    }
    while (said && slot->state.load() != WorkerState::kUsable && Clock::now() < deadline) {
      std::this_thread::sleep_for(kReadyCheck);
    }
  }
  return {};
}

bool WorkerPool::reaches(int worker, int gpu) const {
  const uint64_t reached = slots_[static_cast<size_t>(worker)]->gpu_reached.load();
  return gpu >= 0 && gpu < WorkerGpu::kPlaces && (reached >> gpu & 1) != 0;
}

int WorkerPool::GpuPlace(std::string_view uuid) const { return gpu_registry_.PlaceOf(uuid); }

GpuCosts WorkerPool::costs_of(int gpu) const {
  GpuCosts costs = options_.costs;
  for (const std::unique_ptr<WorkerSlot>& slot : slots_) {
    if (gpu < 0 || slot->gpu.load() != gpu) continue;
    const auto measured = ReadCosts(*static_cast<const RingLayout*>(slot->ring_block.data()));
    if (!measured) continue;
    costs.Take(*measured);
    break;
  }
  return costs;
}

void WorkerPool::WakeWorker(int worker) {
  const WorkerSlot& slot = *slots_.at(static_cast<size_t>(worker));
  // A hint: the ring may be made anew meanwhile, and who is about to sleep does so.
  std::atomic<uint32_t>& sleeps =
      static_cast<RingLayout*>(slot.ring_block.data())->worker_sleeps.value;
  if (sleeps.load() == 0) return;
  ++doorbell_->wake_hints.value;
  FutexWake(sleeps, 1);
}

Status WorkerPool::Unmap(memory::MappingId mapping) { return mappings_.Unmap(mapping); }

Result<std::optional<memory::ProbeMismatch>> WorkerPool::Compare(
    std::span<const memory::MemoryProbe> probes) {
  return mappings_.Compare(probes);
}

bool WorkerPool::asks_for_gpu() const {
  return std::any_of(slots_.begin(), slots_.end(),
                     [](const auto& slot) { return slot->asks_for_gpu.load(); });
}

std::vector<WorkerStatus> WorkerPool::workers() const {
  std::vector<WorkerStatus> statuses;
  for (const std::unique_ptr<WorkerSlot>& slot : slots_) {
    WorkerStatus status;
    status.index = slot->index;
    status.state = slot->state.load();
    status.restarts = slot->restarts.load();
    const int gpu = slot->gpu.load();
    const auto gpus = gpu_registry_.gpus();  // after its place, which is among them then
    const bool usable = status.state == WorkerState::kUsable;
    if (usable && gpu >= 0) status.gpu = (*gpus)[static_cast<size_t>(gpu)];
    for (size_t i = 0; usable && gpu >= 0 && i < gpus->size(); ++i) {
      if (reaches(slot->index, static_cast<int>(i))) status.gpus_reached.push_back((*gpus)[i]);
    }
    status.asks_for_gpu = usable && slot->asks_for_gpu.load();
    status.mappings = slot->mapped.load();
    status.maps_succeeded = slot->maps_succeeded.load();
    status.maps_failed = slot->maps_failed.load();
    status.jobs_done = slot->jobs_done.load();
    status.jobs_lost = slot->jobs_lost.load();
    if (const auto process = slot->process()) status.pid = process->pid();
    const MutexLock lock(slot->mutex);
    status.last_exit = slot->last_exit;
    if (usable && gpu >= 0) {
      status.gpu_free_bytes = slot->gpu_memory.free;
      status.gpu_bytes = slot->gpu_memory.total;
    }
    if (usable && gpu < 0) status.no_gpu_because = slot->no_gpu_because;
    statuses.push_back(std::move(status));
  }
  return statuses;
}

}  // namespace gantry::worker
