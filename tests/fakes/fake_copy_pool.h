// A pool of copy workers and MemoryMapper in one process: real mappings, real copies, done inside
// of Post unless they are held back. Mapping and the knobs are thread-safe; Post, Poll and Wait
// belong to the driver, as in the real pool.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <map>
#include <new>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "lib/base/mutex.h"
#include "sidecar/memory/host_memory.h"
#include "sidecar/worker/channel/copy_pool.h"
#include "sidecar/worker/channel/copy_workers.h"
#include "sidecar/worker/channel/driver_sleep.h"
#include "sidecar/worker/process/segment_copy.h"
#include "sidecar/worker/process/stream_copy.h"
#include "tests/fakes/test_waker.h"

namespace gantry::worker {

class FakeCopyPool final : public CopyPool,
                           public CopyWorkers,
                           public DriverSleep,
                           public memory::MemoryMapper {
 public:
  explicit FakeCopyPool(int workers = 2, size_t slots = 4096)
      : worker_count_(workers), slots_(slots), workers_(static_cast<size_t>(workers)) {}

  // Completions of jobs posted from now on come no sooner than `delay` after Post. The bytes move
  // just before the completion, as late as a real worker may move them.
  void DelayCompletions(milliseconds delay) {
    const MutexLock lock(mutex_);
    delay_ = delay;
  }
  // Jobs stay where they are until Release(); a hung worker.
  void Hold() { SetHeld(true); }
  void Release() { SetHeld(false); }
  // The job with this tag completes with `code` and moves nothing.
  void FailTag(uint64_t tag, ErrorCode code) {
    const MutexLock lock(mutex_);
    failures_[tag] = code;
  }
  // Every job fails from now on, until it is called with nothing.
  void FailAll(std::optional<ErrorCode> code) {
    const MutexLock lock(mutex_);
    fail_all_ = code;
  }
  // The worker dies: its jobs complete with kWorkerLost, unmoved. It stays away until Revive, or
  // comes back at once after Replace.
  void LoseWorker(int worker) { Lose(worker, /*comes_back=*/false); }
  void Revive(int worker) {
    const MutexLock lock(mutex_);
    at(worker).usable = true;
    waker_.Wake();
  }
  // From now on every Poll throws.
  void RunOutOfMemory() { out_of_memory_ = true; }
  // The next Map fails with this error.
  void FailNextMap(Error error) {
    const MutexLock lock(mutex_);
    map_failure_ = std::move(error);
  }

  size_t mapping_count() const {
    const MutexLock lock(mutex_);
    return mappings_.size();
  }
  size_t in_flight() const {
    const MutexLock lock(mutex_);
    size_t jobs = 0;
    for (const Worker& worker : workers_) jobs += worker.jobs.size();
    return jobs;
  }
  // What has been posted, in order; for tests of the plan.
  struct Posted {
    int worker = 0;
    uint64_t tag = 0;
    std::vector<CopySegment> segments;
  };
  std::vector<Posted> posted() const {
    const MutexLock lock(mutex_);
    return posted_;
  }
  int replacements() const {
    const MutexLock lock(mutex_);
    return replacements_;
  }

  int worker_count() const override { return worker_count_; }
  bool usable(int worker) const override {
    const MutexLock lock(mutex_);
    return workers_[static_cast<size_t>(worker)].usable;
  }
  size_t free_slots(int worker) const override {
    const MutexLock lock(mutex_);
    return FreeSlots(workers_[static_cast<size_t>(worker)]);
  }
  size_t free_places(int /*worker*/) const override { return slots_; }
  // As if all memory and all workers were on one GPU.
  int gpu_of(int /*worker*/) const override { return 0; }
  bool reaches(int /*worker*/, int /*gpu*/) const override { return true; }
  int GpuPlace(std::string_view /*uuid*/) const override { return 0; }
  bool Post(int worker, uint64_t tag, std::span<const CopySegment> segments) override {
    const MutexLock lock(mutex_);
    Worker& target = at(worker);
    if (!target.usable || segments.empty() || FreeSlots(target) < segments.size()) return false;
    std::vector<CopySegment> copy(segments.begin(), segments.end());
    for (CopySegment& segment : copy) {
      kept_places_.emplace_back(segment.places.begin(), segment.places.end());
      segment.places = kept_places_.back();
    }
    posted_.push_back({worker, tag, copy});
    target.jobs.push_back({tag, Clock::now() + delay_, copy});
    return true;
  }
  size_t Poll(std::span<Completion> completions) override {
    if (out_of_memory_) throw std::bad_alloc();
    const MutexLock lock(mutex_);
    for (size_t i = 0; i < workers_.size(); ++i) RunDueJobs(static_cast<int>(i));
    const size_t taken = std::min(completions.size(), finished_.size());
    std::copy_n(finished_.begin(), taken, completions.begin());
    finished_.erase(finished_.begin(), finished_.begin() + static_cast<ptrdiff_t>(taken));
    return taken;
  }
  void Wait(TimePoint deadline, Mutex* driver) override {
    WaitIgnoringCompletions(std::min(deadline, NextCompletion()), driver);
  }
  void WaitIgnoringCompletions(TimePoint deadline,
                               Mutex* driver) override NO_THREAD_SAFETY_ANALYSIS {
    driver->unlock();
    waker_.WaitUntil(deadline);
    driver->lock();
  }
  void WakeWaiter() override { waker_.Wake(); }
  // Its waiter sleeps by a clock, and is not kept from waking.
  void BeginDriving() override {}
  void EndDriving(bool wake) override {
    const MutexLock lock(mutex_);
    if (wake || NextDue() != TimePoint::max()) waker_.Wake();
  }
  void ClearWakeRequests() override {}
  void Replace(int worker) override { Lose(worker, /*comes_back=*/true); }
  void WakeWorker(int worker) override {
    const MutexLock lock(mutex_);
    woken_.insert(worker);
  }
  std::set<int> TakeWoken() {
    const MutexLock lock(mutex_);
    return std::exchange(woken_, {});
  }

  Result<memory::MappingId> Map(const memory::AllocationSource& source) override {
    const MutexLock lock(mutex_);
    if (map_failure_) {
      Error error = std::move(*map_failure_);
      map_failure_.reset();
      return Fail(std::move(error));
    }
    ASSIGN_OR_RETURN(memory::HostMapping mapping,
                     memory::HostMapping::Create(source.fd->get(), source.size, source.writable));
    const memory::MappingId id = {TakeMappingSlot(), ++last_generation_};
    mappings_.emplace(id.slot, Mapping{id.generation, std::move(mapping)});
    return id;
  }
  Status Unmap(memory::MappingId id) override {
    const MutexLock lock(mutex_);
    const auto found = mappings_.find(id.slot);
    if (found == mappings_.end() || found->second.generation != id.generation) {
      return Fail(ErrorCode::kStaleGeneration, "the mapping was released before");
    }
    free_mapping_slots_.push_back(id.slot);
    mappings_.erase(found);
    return {};
  }
  Result<std::optional<memory::ProbeMismatch>> Compare(
      std::span<const memory::MemoryProbe> probes) override {
    const MutexLock lock(mutex_);
    for (const memory::MemoryProbe& probe : probes) {
      const std::optional<MappedBytes> mapped = Find(probe.mapping);
      if (!mapped) return Fail(ErrorCode::kStaleGeneration, "no such mapping");
      if (std::memcmp(mapped->data + probe.offset, probe.bytes.data(), probe.length) == 0) continue;
      const auto index = static_cast<size_t>(&probe - probes.data());
      return memory::ProbeMismatch{index, "the fake", "other bytes"};
    }
    return std::nullopt;
  }

 private:
  struct Job {
    uint64_t tag = 0;
    TimePoint due;
    std::vector<CopySegment> segments;
  };
  struct Worker {
    bool usable = true;
    std::deque<Job> jobs;
  };
  struct Mapping {
    uint32_t generation = 0;
    memory::HostMapping bytes;
  };

  Worker& at(int worker) REQUIRES(mutex_) { return workers_[static_cast<size_t>(worker)]; }
  void SetHeld(bool held) {
    const MutexLock lock(mutex_);
    held_ = held;
    waker_.Wake();
  }
  size_t FreeSlots(const Worker& worker) const REQUIRES(mutex_) {
    size_t used = 0;
    for (const Job& job : worker.jobs) used += job.segments.size();
    return worker.usable && used < slots_ ? slots_ - used : 0;
  }
  // The past: it is there.
  TimePoint NextCompletion() const {
    const MutexLock lock(mutex_);
    return finished_.empty() ? NextDue() : TimePoint();
  }
  TimePoint NextDue() const REQUIRES(mutex_) {
    TimePoint next = TimePoint::max();
    for (const Worker& worker : workers_) {
      if (!held_ && !worker.jobs.empty()) next = std::min(next, worker.jobs.front().due);
    }
    return next;
  }
  uint32_t TakeMappingSlot() REQUIRES(mutex_) {
    if (free_mapping_slots_.empty()) return static_cast<uint32_t>(mappings_.size());
    const uint32_t slot = free_mapping_slots_.back();
    free_mapping_slots_.pop_back();
    return slot;
  }
  void Lose(int worker, bool comes_back) {
    const MutexLock lock(mutex_);
    Worker& lost = at(worker);
    for (const Job& job : lost.jobs) {
      finished_.push_back({job.tag, worker, false, ErrorCode::kWorkerLost, 0});
    }
    lost.jobs.clear();
    lost.usable = comes_back;
    if (comes_back) ++replacements_;
    waker_.Wake();
  }
  void RunDueJobs(int worker) REQUIRES(mutex_) {
    std::deque<Job>& jobs = at(worker).jobs;
    const TimePoint now = Clock::now();
    while (!held_ && !jobs.empty() && jobs.front().due <= now) {
      const Job job = std::move(jobs.front());
      jobs.pop_front();
      const std::optional<ErrorCode> refused = Run(job);
      const TimePoint end = Clock::now();
      const auto copied = static_cast<uint64_t>(std::max<int64_t>(1, (end - now).count()));
      finished_.push_back(
          {job.tag, worker, !refused, refused.value_or(ErrorCode::kInternal), copied});
    }
  }
  std::optional<ErrorCode> Run(const Job& job) REQUIRES(mutex_) {
    if (fail_all_) return fail_all_;
    if (const auto failure = failures_.find(job.tag); failure != failures_.end()) {
      return failure->second;
    }
    std::optional<ErrorCode> first;
    for (const CopySegment& segment : job.segments) {
      const std::optional<ErrorCode> refused = RunSegment(segment);
      if (!first) first = refused;
    }
    return first;
  }
  std::optional<ErrorCode> RunSegment(const CopySegment& segment) REQUIRES(mutex_) {
    const std::optional<MappedBytes> source = Find(segment.source);
    const std::optional<MappedBytes> destination = Find(segment.destination);
    if (!source || !destination) return ErrorCode::kStaleGeneration;
    const std::optional<ErrorCode> refused = ValidateSegment(segment, *source, *destination);
    if (!refused) CopyBytes(segment, *source, *destination);
    FenceStreams();
    return refused;
  }
  std::optional<MappedBytes> Find(memory::MappingId id) const REQUIRES(mutex_) {
    const auto found = mappings_.find(id.slot);
    if (found == mappings_.end() || found->second.generation != id.generation) return {};
    const memory::HostMapping& bytes = found->second.bytes;
    return MappedBytes{bytes.data(), bytes.size(), bytes.writable()};
  }

  const int worker_count_;
  const size_t slots_;
  gantry::testing::TestWaker waker_;
  std::atomic<bool> out_of_memory_ = false;
  mutable Mutex mutex_;
  std::vector<Worker> workers_ GUARDED_BY(mutex_);
  std::deque<Completion> finished_ GUARDED_BY(mutex_);
  std::map<uint32_t, Mapping> mappings_ GUARDED_BY(mutex_);
  std::vector<uint32_t> free_mapping_slots_ GUARDED_BY(mutex_);
  uint32_t last_generation_ GUARDED_BY(mutex_) = 0;
  std::map<uint64_t, ErrorCode> failures_ GUARDED_BY(mutex_);
  std::optional<ErrorCode> fail_all_ GUARDED_BY(mutex_);
  std::optional<Error> map_failure_ GUARDED_BY(mutex_);
  std::vector<Posted> posted_ GUARDED_BY(mutex_);
  std::deque<std::vector<BlockPlaces>> kept_places_ GUARDED_BY(mutex_);  // of all that was posted
  milliseconds delay_ GUARDED_BY(mutex_){0};
  bool held_ GUARDED_BY(mutex_) = false;
  int replacements_ GUARDED_BY(mutex_) = 0;
  std::set<int> woken_ GUARDED_BY(mutex_);
};

}  // namespace gantry::worker
