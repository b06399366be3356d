// Invariant 8 in the rings: who takes an entry sees the entry whole, and all that the other side
// wrote before it. What an entry stands for is plain memory here, as the bytes of a copy are, so
// that ThreadSanitizer notices when the ring does not order it.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <thread>

#include "sidecar/worker/channel/worker_ring.h"

namespace gantry::worker {
namespace {

constexpr uint64_t kOrderedJobs = 50'000;  // or as many as are done in
constexpr milliseconds kTime{3'000};
constexpr uint64_t kPlaces = 64;
constexpr uint64_t kSegments = 8;  // of each job

class RingOrder : public ::testing::Test {
 protected:
  // Until `done` says so; false when the other end has failed, or takes too long. Both ends look
  // all the time, as an entry that comes too early is only seen by who looks at that moment.
  template <typename Done>
  bool Spin(const Done& done) {
    for (int i = 1; !done(); ++i) {
      if (i % 1'000 != 0) continue;
      if (ended_ || Clock::now() > limit_) return done();  // what came last counts
      std::this_thread::yield();
    }
    return true;
  }

  bool TakeJob(uint64_t job) {
    uint64_t tag = 0;
    CopySegment segment;
    bool ends_job = false;
    RingTake take = RingTake::kEmpty;
    const auto taken = [&] {
      take = worker_.TakeSegment(&tag, &segment, &ends_job);
      return take != RingTake::kEmpty;
    };
    for (uint64_t i = 1; i <= kSegments; ++i) {
      if (!Spin(taken) || take != RingTake::kEntry || tag != job) return false;
      if (segment.length != job + i || ends_job != (i == kSegments)) return false;
      if (asked_[job % kPlaces] != job) return false;
    }
    return true;
  }
  uint64_t ServeAsWorker() {
    uint64_t job = 0;
    for (; TakeJob(job); ++job) {
      done_[job % kPlaces] = job;
      if (!worker_.Complete({job, 0, true, {}, job * 3})) break;
    }
    return job;
  }

  const std::unique_ptr<RingLayout> memory_ = std::make_unique<RingLayout>();
  Doorbell doorbell_ = {};
  PoolRingEnd pool_{InitializeRing(memory_.get())};
  WorkerRingEnd worker_{memory_.get(), &doorbell_};
  std::array<uint64_t, kPlaces> asked_ = {};
  std::array<uint64_t, kPlaces> done_ = {};
  std::atomic<bool> ended_ = false;
  const TimePoint limit_ = Clock::now() + std::chrono::seconds(20);
};

TEST_F(RingOrder, WhatWasWrittenBeforeAnEntryIsSeenWithIt) {
  uint64_t served = 0;
  std::thread worker([&] {
    served = ServeAsWorker();
    ended_ = true;
  });
  std::array<CopySegment, kSegments> segments;
  Completion completion;
  RingTake take = RingTake::kEmpty;
  const auto taken = [&] {
    take = pool_.TakeCompletion(&completion);
    return take != RingTake::kEmpty;
  };
  const TimePoint end = Clock::now() + kTime;
  uint64_t job = 0;
  bool in_order = true;
  for (; job < kOrderedJobs && Clock::now() < end && in_order; ++job) {
    asked_[job % kPlaces] = job;
    for (uint64_t i = 0; i < kSegments; ++i) segments[i].length = job + i + 1;
    in_order = pool_.Submit(job, segments) && Spin(taken) && take == RingTake::kEntry &&
               completion.tag == job && completion.copy_nanoseconds == job * 3 &&
               done_[job % kPlaces] == job;
  }
  ended_ = true;
  worker.join();
  EXPECT_TRUE(in_order) << "completion " << job - 1 << " came before what it stands for";
  EXPECT_EQ(served, job) << "a job came before what it stands for";
}

// The ring's entries are read-only until one is written: then the fault tells what the index that
// publishes it says at that moment. The indices themselves lie before, in the first page.
struct Guard {
  char* entries = nullptr;
  size_t bytes = 0;
  const std::atomic<uint32_t>* index = nullptr;
  std::atomic<int> faults = 0;
  std::atomic<uint32_t> published = 0;  // when the first entry was written
};
Guard guard;

void TakeFault(int) {
  if (guard.faults++ == 0) guard.published = guard.index->load();
  if (::mprotect(guard.entries, guard.bytes, PROT_READ | PROT_WRITE) != 0) ::_exit(1);
}

class GuardedRing : public ::testing::Test {
 protected:
  GuardedRing() {
    const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
    void* memory = ::mmap(nullptr, sizeof(RingLayout), PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) std::abort();
    ring_ = InitializeRing(memory);
    guard.entries = static_cast<char*>(memory) + page;
    guard.bytes = sizeof(RingLayout) - page;
    struct sigaction action = {};
    action.sa_handler = TakeFault;
    ::sigaction(SIGSEGV, &action, &before_);
  }
  ~GuardedRing() override {
    ::sigaction(SIGSEGV, &before_, nullptr);
    ::munmap(ring_, sizeof(RingLayout));
  }
  static void Watch(const RingWord& index) {
    guard.index = &index.value;
    guard.faults = 0;
    ASSERT_EQ(::mprotect(guard.entries, guard.bytes, PROT_READ), 0);
  }

  RingLayout* ring_ = nullptr;
  struct sigaction before_ = {};
};

TEST_F(GuardedRing, EntriesAreWrittenBeforeTheyArePublished) {
  Doorbell doorbell = {};
  PoolRingEnd pool(ring_);
  WorkerRingEnd worker(ring_, &doorbell);
  Watch(ring_->submission_head);
  const std::array<CopySegment, 2> segments;
  ASSERT_TRUE(pool.Submit(1, segments));
  EXPECT_EQ(guard.faults, 1);
  EXPECT_EQ(guard.published, kFirstIndex);
  EXPECT_EQ(ring_->submission_head.value, kFirstIndex + 2);
  Watch(ring_->completion_head);
  ASSERT_TRUE(worker.Complete({}));
  EXPECT_EQ(guard.faults, 1);
  EXPECT_EQ(guard.published, kFirstIndex);
  EXPECT_EQ(ring_->completion_head.value, kFirstIndex + 1);
}

}  // namespace
}  // namespace gantry::worker
