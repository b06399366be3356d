#include "sidecar/copy/staged_copies.h"

#include <algorithm>
#include <utility>

#include "sidecar/copy/copy_operation.h"

namespace gantry::transport {
namespace {

// How often copies that run are looked at: less than what a lease's margin is for.
constexpr milliseconds kLookEvery{25};
// Nothing more is posted when less than this is left until the end: a copy of a request takes some
// milliseconds, and one that cannot end in time would cost its worker.
constexpr milliseconds kTimeToCopy{100};
// What waits longer for its turn goes first, whatever its priority: it holds slices that others
// wait for, a peer's write has a lease, and both would stand still beside local transfers that are
// asked for again and again. A half of the default staging every so often is a small part of what
// the workers copy.
constexpr milliseconds kTurnMax{50};
// For Close: what the GPUs are at by then is ended by force.
constexpr milliseconds kCloseMax{1'000};

// kFdTooShort: a file of the ranges was truncated, which a copy need not notice.
Status CheckNotTruncated(const std::vector<StagedRange>& ranges) {
  const memory::MappedAllocation* checked = nullptr;
  for (const StagedRange& range : ranges) {
    if (range.memory.get() != checked) RETURN_IF_ERROR(range.memory->CheckNotTruncated());
    checked = range.memory.get();
  }
  return {};
}

uint32_t IndexOf(const std::shared_ptr<const memory::MappedAllocation>& memory, MovePlan* plan) {
  const auto found = std::find(plan->local.begin(), plan->local.end(), memory);
  if (found == plan->local.end()) {
    plan->local.push_back(memory);
    return static_cast<uint32_t>(plan->local.size() - 1);
  }
  return static_cast<uint32_t>(found - plan->local.begin());
}

}  // namespace

StagedCopies::StagedCopies(CopyScheduler& copies,
                           std::shared_ptr<const memory::MappedAllocation> stage,
                           std::function<void()> wake,
                           std::function<void(TimePoint, std::function<void()>)> call_at)
    : copies_(copies),
      stage_(std::move(stage)),
      wake_(std::move(wake)),
      call_at_(std::move(call_at)) {}

StagedCopies::~StagedCopies() = default;

void StagedCopies::Close() {
  MutexLock lock(mutex_);
  closed_ = true;
  const TimePoint by_force = Clock::now() + kCloseMax;
  bool forced = false;
  while (unfinished_ > 0) {
    wake_();
    if (ended_.WaitUntil(lock, forced ? Clock::now() + kCloseMax : by_force) || forced) continue;
    forced = true;
    aborted_.push_back(nullptr);
  }
}

Status StagedCopies::Usable(wire::MemoryKind kind) const {
  {
    const MutexLock lock(mutex_);
    if (closed_) return Fail(ErrorCode::kShuttingDown, "the sidecar is stopping");
  }
  if (kind == wire::MemoryKind::kHost || copies_.HasGpuWorkers()) return {};
  return Fail(worker::NoGpuWorkers());
}

void StagedCopies::Start(StagedCopy copy) {
  const bool on_gpu = std::any_of(
      copy.ranges.begin(), copy.ranges.end(),
      [](const StagedRange& range) { return range.memory->kind() == wire::MemoryKind::kGpu; });
  Status taken = Usable(on_gpu ? wire::MemoryKind::kGpu : wire::MemoryKind::kHost);
  if (taken) taken = Take(&copy);
  if (taken) return wake_();
  copy.ranges.clear();
  copy.done(std::move(taken));
}

Status StagedCopies::Take(StagedCopy* copy) {
  const MutexLock lock(mutex_);
  if (closed_) return Fail(ErrorCode::kShuttingDown, "the sidecar is stopping");
  ++unfinished_;
  started_.push_back(std::move(*copy));
  return {};
}

void StagedCopies::Abort(const void* owner) {
  {
    const MutexLock lock(mutex_);
    aborted_.push_back(owner);
  }
  wake_();
}

bool StagedCopies::Poll() {
  const bool ended = EndFinished();
  const bool begun = BeginNew();
  const bool forced = LookAtTimes(running_.empty() ? TimePoint() : Clock::now());
  return ended || begun || forced;
}

bool StagedCopies::EndFinished() {
  if (finished_.empty()) return false;
  // What they are told may be that another one begins, or that a transfer failed, both for later.
  const std::vector<uint64_t> finished = std::exchange(finished_, {});
  for (const uint64_t token : finished) {
    const auto found = running_.find(token);
    // The scheduler also names those that failed and are not quiet yet.
    if (found == running_.end() || !found->second.operation->finished()) continue;
    Running running = std::move(found->second);
    running_.erase(found);
    Finish(std::move(running));
  }
  return true;
}

void StagedCopies::Finish(Running running) {
  Status outcome;
  if (const auto& error = running.operation->error()) {
    outcome = Fail(*error);
  } else if (running.operation->progress().bytes < running.bytes) {
    outcome = Fail(ErrorCode::kDeadlineExceeded, "the copy did not end in its time");
  } else {
    (running.copy.to_buffer ? totals_.bytes_to_buffers : totals_.bytes_from_buffers) +=
        running.bytes;
    outcome = CheckNotTruncated(running.copy.ranges);
  }
  running.operation.reset();
  running.copy.ranges.clear();
  running.copy.done(std::move(outcome));
  const MutexLock lock(mutex_);
  if (--unfinished_ == 0) ended_.NotifyAll();
}

bool StagedCopies::BeginNew() {
  std::vector<StagedCopy> started;
  {
    const MutexLock lock(mutex_);
    started.swap(started_);
  }
  for (StagedCopy& copy : started) Begin(std::move(copy));
  return !started.empty();
}

void StagedCopies::Begin(StagedCopy copy) {
  Running running;
  for (const StagedRange& range : copy.ranges) running.bytes += range.bytes;
  const uint64_t token = next_token_++;
  running.begun = Clock::now();
  if (copy.end) running.last_post = *copy.end - kTimeToCopy;
  running.operation =
      copies_.StartFor(PlanOf(copy), copy.priority, token, &finished_, running.last_post);
  running.copy = std::move(copy);
  running_.emplace(token, std::move(running));
}

std::shared_ptr<const MovePlan> StagedCopies::PlanOf(const StagedCopy& copy) const {
  auto plan = std::make_shared<MovePlan>();
  plan->operation = copy.to_buffer ? wire::Operation::kRead : wire::Operation::kWrite;
  plan->remote.push_back({stage_});
  plan->segments.ReserveMore(copy.ranges.size());
  for (const StagedRange& range : copy.ranges) {
    MoveSegment segment;
    segment.local_allocation = IndexOf(range.memory, plan.get());
    segment.local_offset = range.offset;
    segment.remote_offset = range.stage_offset;
    segment.length = range.bytes;
    plan->segments.push_back(segment);
    plan->bytes += range.bytes;
  }
  return plan;
}

bool StagedCopies::LookAtTimes(TimePoint now) {
  std::vector<const void*> aborted;
  {
    const MutexLock lock(mutex_);
    aborted.swap(aborted_);
  }
  bool any = false;
  bool more = false;
  for (auto& [token, running] : running_) {
    const bool by_force = std::any_of(aborted.begin(), aborted.end(),
                                      [owned = running.copy.owner](const void* owner) {
                                        return owner == nullptr || owner == owned;
                                      });
    const bool over = running.copy.end && now >= *running.copy.end;
    if (now >= running.last_post && !running.stopped) {
      running.stopped = any = true;
      running.operation->Stop();  // what is posted may still end
    }
    if ((by_force || over) && !running.ended) {
      running.ended = any = true;
      running.operation->Abort();
    }
    if (now - running.begun >= kTurnMax && !running.hastened && !running.stopped) {
      running.hastened = any = true;
      running.operation->Hasten();
    }
    more |= (running.copy.end.has_value() && !running.ended) || !running.hastened;
  }
  if (more) LookAgain();
  return any;
}

// One call is under way for all of them.
void StagedCopies::LookAgain() {
  const TimePoint now = Clock::now();
  if (look_again_ != TimePoint::max() && look_again_ > now) return;
  look_again_ = now + kLookEvery;
  call_at_(look_again_, wake_);
}

}  // namespace gantry::transport
