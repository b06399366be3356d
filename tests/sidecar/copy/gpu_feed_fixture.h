// A pool whose jobs are completed by hand, and plans of GPU memory that a transport gives out to
// it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "sidecar/copy/copy_scheduler.h"
#include "tests/fakes/driven_copy_pool.h"
#include "tests/fakes/fake_copy_pool.h"
#include "tests/fakes/test_arena.h"

namespace gantry::transport {

using worker::Completion;
using worker::CopySegment;
using worker::GpuMeans;

inline constexpr size_t kSlots = 4096;

class HandPool final : public worker::DrivenCopyPool {
 public:
  struct Job {
    uint64_t tag = 0;
    size_t slots = 0;
    std::vector<uint64_t> destinations;  // of its blocks
    GpuMeans means = GpuMeans::kCopyEngine;
    uint64_t bytes = 0;
  };
  explicit HandPool(int workers)
      : jobs(static_cast<size_t>(workers)), gpus_of_workers(static_cast<size_t>(workers)) {}

  int worker_count() const override { return static_cast<int>(jobs.size()); }
  bool usable(int worker) const override { return !unusable.contains(worker); }
  size_t free_slots(int worker) const override {
    size_t used = 0;
    for (const Job& job : jobs[static_cast<size_t>(worker)]) used += job.slots;
    return kSlots - used;
  }
  size_t free_places(int /*worker*/) const override { return places; }
  int gpu_of(int worker) const override { return gpus_of_workers[static_cast<size_t>(worker)]; }
  bool reaches(int worker, int gpu) const override { return peers || gpu_of(worker) == gpu; }
  void WakeWorker(int worker) override { woken.insert(worker); }
  bool Post(int worker, uint64_t tag, std::span<const CopySegment> segments) override {
    if (free_slots(worker) < segments.size()) return false;
    Job job{tag, segments.size(), {}, segments.front().means};
    for (const CopySegment& segment : segments) {
      job.bytes += segment.length * segment.count;
      if (!lists) continue;
      for (const auto& place : segment.places) job.destinations.push_back(place.destination);
      for (uint64_t i = 0; segment.places.empty() && i < segment.count; ++i) {
        for (uint64_t byte = 0; byte < segment.length; ++byte) {
          job.destinations.push_back(segment.destination_offset + i * segment.destination_stride +
                                     byte);
        }
      }
    }
    jobs[static_cast<size_t>(worker)].push_back(std::move(job));
    return true;
  }
  size_t Poll(std::span<Completion> completions) override {
    size_t taken = 0;
    for (; taken < completions.size() && !done.empty(); done.pop_front()) {
      completions[taken++] = done.front();
    }
    return taken;
  }

  // The oldest job of each worker is done, as it was asked for or by copy engines.
  void FinishOneEach(bool kernels = true) {
    for (int worker = 0; worker < worker_count(); ++worker) Finish(worker, kernels);
  }
  void Finish(int worker, bool kernels = true, nanoseconds taken = nanoseconds(1000)) {
    auto& queue = jobs[static_cast<size_t>(worker)];
    if (queue.empty()) return;
    Completion completion;
    completion.tag = queue.front().tag;
    completion.worker = worker;
    completion.copy_nanoseconds = static_cast<uint64_t>(taken.count());
    completion.means = kernels ? queue.front().means : GpuMeans::kCopyEngine;
    for (const uint64_t block : queue.front().destinations) copied.push_back(block);
    queue.pop_front();
    done.push_back(completion);
  }
  void Lose(int worker) {
    auto& queue = jobs[static_cast<size_t>(worker)];
    for (const Job& job : queue) {
      done.push_back({job.tag, worker, false, ErrorCode::kWorkerLost, 0, {}});
    }
    queue.clear();
  }

  bool lists = true;                  // the destinations of jobs
  std::vector<std::deque<Job>> jobs;  // of each worker
  std::vector<int> gpus_of_workers;   // likewise: its GPU
  std::vector<uint64_t> copied;       // destinations
  size_t places = 65536;
  std::set<int> woken;
  std::set<int> unusable;
  bool peers = true;  // each GPU reaches every other's memory
  std::deque<Completion> done;
};

class GpuFeedTest : public ::testing::Test {
 protected:
  // Block i goes to offset i.
  std::shared_ptr<MovePlan> Plan(wire::MemoryKind local, wire::MemoryKind remote, uint32_t blocks) {
    const auto here = Map(local);
    return Plan(here, local == remote ? here : Map(remote), blocks);
  }
  std::shared_ptr<MovePlan> Plan(std::shared_ptr<const memory::MappedAllocation> local,
                                 std::shared_ptr<const memory::MappedAllocation> remote,
                                 uint32_t blocks) {
    auto plan = std::make_shared<MovePlan>();
    plan->local = {std::move(local)};
    plan->remote = {{std::move(remote)}};
    BlockPair pair;
    pair.unit_bytes = pair.local_stride = pair.remote_stride = 1;
    std::vector<BlockRun> runs;
    for (uint32_t i = 0; i < blocks; ++i) runs.push_back({i, i, 1, i});
    plan->segments.AddRuns({pair}, std::move(runs));
    plan->bytes = blocks;
    return plan;
  }
  std::shared_ptr<MovePlan> Plan(wire::MemoryKind kind, uint32_t blocks) {
    return Plan(kind, kind, blocks);
  }
  std::shared_ptr<const memory::MappedAllocation> Map(wire::MemoryKind kind, int gpu = 0) {
    memory::AllocationSource source;
    source.fd = std::make_shared<UniqueFd>(arena_.Fd());
    source.size = arena_.size();
    source.writable = true;
    source.kind = kind;
    source.gpu.form = wire::GpuExport::kPiece;
    source.gpu.device_uuid = std::to_string(gpu);
    source.exporter = "a workload";
    return *memory::MappedAllocation::Create(mapper_, source);
  }
  std::unique_ptr<Operation> Start(wire::MemoryKind kind, uint32_t blocks, int priority = 0) {
    return transport_.Start(Plan(kind, blocks), priority, ++tokens_);
  }
  void Poll() {
    std::vector<uint64_t> ready_tokens;
    polled_ = transport_.Poll(&ready_tokens);
  }
  CopySchedulerOptions By(GpuCopyPolicy policy) const {
    CopySchedulerOptions options;
    options.gpu_copies = policy;
    return options;
  }
  void Run(CopyScheduler* transport, const Operation& operation) {
    std::vector<uint64_t> ready_tokens;
    for (int i = 0; i < 5000 && !operation.finished(); ++i) {
      transport->Poll(&ready_tokens);
      pool_.FinishOneEach();
    }
    transport->Poll(&ready_tokens);
  }
  void RunUntil(const Operation& operation, int rounds = 5000, bool kernels = true) {
    for (; !operation.finished() && rounds > 0; --rounds) {
      Poll();
      pool_.FinishOneEach(kernels);
    }
    Poll();
  }
  void EndAll(std::vector<Operation*> operations) {
    for (Operation* operation : operations) operation->Stop();
    for (int i = 0; i < 5000; ++i) {
      pool_.FinishOneEach();
      Poll();
    }
  }
  // Of another pool than the fixture's.
  static void End(CopyScheduler* transport, HandPool* pool, Operation* operation) {
    std::vector<uint64_t> ready_tokens;
    operation->Stop();
    for (int i = 0; i < 100; ++i) {
      pool->FinishOneEach();
      transport->Poll(&ready_tokens);
    }
  }
  // Each block once, but for those of jobs that were lost.
  void ExpectAllCopied(uint32_t blocks) {
    std::vector<bool> seen(blocks);
    for (const uint64_t block : pool_.copied) seen[block] = true;
    EXPECT_TRUE(std::all_of(seen.begin(), seen.end(), [](bool is) { return is; }));
  }

  static constexpr auto kHost = wire::MemoryKind::kHost;
  static constexpr auto kGpu = wire::MemoryKind::kGpu;
  testing::TestArena arena_{65536};
  worker::FakeCopyPool mapper_;
  HandPool pool_{2};
  CopyScheduler transport_{{}, pool_, pool_};
  PollOutcome polled_;  // of the last Poll
  uint64_t tokens_ = 0;
};

}  // namespace gantry::transport
