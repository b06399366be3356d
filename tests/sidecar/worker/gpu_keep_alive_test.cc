// The worker that copied on a GPU last keeps its GPU awake, and the links to the others: while it
// looks for work, and when it is woken after a pause.
#include <pthread.h>
#include <time.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "sidecar/worker/channel/futex_wait.h"
#include "tests/sidecar/worker/gpu_loop_fixture.h"

namespace gantry::worker {
namespace {

constexpr milliseconds kSomeKeepAlives{20};
constexpr size_t kNone = SIZE_MAX;

// Calls of the fake driver that fail for as long as this is.
class Failing {
 public:
  explicit Failing(const std::string& calls) {
    const char* folder = std::getenv("GANTRY_FAKE_GPU_DIR");
    if (folder == nullptr) return;
    file_ = std::string(folder) + "/failures";
    std::ofstream(file_) << calls;
  }
  ~Failing() { std::filesystem::remove(file_); }

 private:
  std::string file_;
};
constexpr const char* kAllocations = "cuMemAlloc=2,hipMalloc=2";
constexpr const char* kCopies = "cuMemcpyAsync=999,hipMemcpyAsync=999";
constexpr const char* kMarks = "cuEventRecord=2,hipEventRecord=2";  // while the copy is under way
constexpr const char* kPieces = "cuMemCreate=2";  // AMD GPUs make none on others anyway

// For a while, in which the loop of `thread` looks for work many times or falls asleep: on a busy
// machine that takes longer.
void Pause(std::thread* thread, const RingLayout& ring) {
  const auto ran = [thread] {
    clockid_t clock;
    timespec time = {};
    EXPECT_EQ(::pthread_getcpuclockid(thread->native_handle(), &clock), 0);
    EXPECT_EQ(::clock_gettime(clock, &time), 0);
    return std::chrono::seconds(time.tv_sec) + nanoseconds(time.tv_nsec);
  };
  const nanoseconds before = ran();
  std::this_thread::sleep_for(kSomeKeepAlives);
  for (int i = 0; i < 10'000 && ring.worker_sleeps.value == 0; ++i) {
    if (ran() - before > kSomeKeepAlives / 2) return;
    std::this_thread::sleep_for(milliseconds(1));
  }
}

// A worker's loop that is told which one copied on a GPU last, and gets no jobs.
struct OtherLoop {
  OtherLoop(const memory::GpuDevices& gpus, uint32_t last) {
    doorbell.last.value = last;
    InitializeRing(memory.get());
    EXPECT_TRUE(loop.UseGpu(gpus));
  }
  void RunForAWhile(const std::optional<std::string>& failing = std::nullopt) {
    std::thread thread([this] { EXPECT_TRUE(loop.Run()); });
    {
      std::optional<Failing> calls;
      if (failing) calls.emplace(*failing);
      Pause(&thread, *memory);
    }
    loop.Stop();
    thread.join();
  }

  MappingTable mappings;
  const std::unique_ptr<RingLayout> memory = std::make_unique<RingLayout>();
  Doorbell doorbell = {};
  WorkerRingEnd ring{memory.get(), &doorbell};
  WorkerLoop loop{&ring, &mappings, milliseconds(60'000)};
};

class GpuKeepAliveTest : public GpuLoopTest {
 protected:
  explicit GpuKeepAliveTest(nanoseconds spin = milliseconds(60'000)) : GpuLoopTest(spin) {}

  void BeforeRun() override {
    ASSERT_TRUE(loop_.UseGpu(gpus_));
    if (loop_.keep_alive() != nullptr) Fill(*loop_.keep_alive());
  }
  // What may be read has other bytes in each of its parts.
  void Fill(const GpuKeepAlive& keep_alive) {
    for (const auto& other : keep_alive.others()) {
      ASSERT_EQ(other->range().size, kSize);
      ASSERT_TRUE(context_->CopyFromHost(other->range().base, image_.data(), kSize));
    }
    const gpu::DeviceAddress own = keep_alive.own().range().base;
    const std::vector<uint8_t> nothing(GpuKeepAlive::kBytes);
    ASSERT_TRUE(context_->CopyFromHost(own, nothing.data(), nothing.size()));
    ASSERT_TRUE(
        context_->CopyFromHost(own + GpuKeepAlive::kBytes, image_.data(), GpuKeepAlive::kBytes));
  }
  // Which part of the image was read last, or kNone. After End, which waits for the GPU.
  size_t PartRead() { return PartRead(*loop_.keep_alive()); }
  size_t PartRead(const GpuKeepAlive& keep_alive) {
    std::vector<uint8_t> bytes(GpuKeepAlive::kBytes);
    const gpu::DeviceAddress own = keep_alive.own().range().base;
    EXPECT_TRUE(context_->CopyToHost(bytes.data(), own, bytes.size()));
    for (size_t part = 0; part < kParts; ++part) {
      const auto first = image_.begin() + static_cast<std::ptrdiff_t>(part * bytes.size());
      if (std::equal(bytes.begin(), bytes.end(), first)) return part;
    }
    return kNone;
  }
  void ExpectThatItCopies() {
    Post(1, {Plain(3, 7, 5'000)});
    EXPECT_TRUE(Await().ok);
    ExpectMoved({{3, 7}}, 5'000);
  }
  // Of a real driver none can be had.
  bool HasFailures() const { return context_->device().uuid.find("fafafafa") != std::string::npos; }
  void Pause() { worker::Pause(&thread_, *memory_); }

  static constexpr size_t kParts = kSize / GpuKeepAlive::kBytes;
};

TEST_P(GpuKeepAliveTest, WhoCopiedLastAndLooksForWorkReads) {
  ExpectThatItCopies();
  EXPECT_EQ(doorbell_.last.value, 1U);
  Pause();
  End();
  ASSERT_NE(loop_.keep_alive(), nullptr);
  EXPECT_NE(PartRead(), kNone);
}

TEST_P(GpuKeepAliveTest, WhoNeverCopiedReadsNothing) {
  Pause();
  Post(1, {OfHost()});
  EXPECT_TRUE(Await().ok);
  Pause();
  End();
  EXPECT_EQ(PartRead(), kNone);
}

TEST_P(GpuKeepAliveTest, WhereAnotherCopiedLastItReadsNothing) {
  OtherLoop other(gpus_, /*last=*/2);
  ASSERT_NE(other.loop.keep_alive(), nullptr);
  Fill(*other.loop.keep_alive());
  other.RunForAWhile();
  EXPECT_EQ(PartRead(*other.loop.keep_alive()), kNone);
}

TEST_P(GpuKeepAliveTest, EachReadsTheNextPartOfTheNextOther) {
  const auto keep_alive = *GpuKeepAlive::Create(gpus_);
  const size_t others = keep_alive->others().size();
  for (size_t i = 0; i <= kParts * std::max<size_t>(others, 1); ++i) {
    const gpu::DeviceAddress expected = others == 0
                                            ? keep_alive->own().range().base + GpuKeepAlive::kBytes
                                            : keep_alive->others()[i % others]->range().base +
                                                  i / others % kParts * GpuKeepAlive::kBytes;
    const gpu::CopyItem item = keep_alive->Next();
    ASSERT_EQ(NumberOf(item.from), NumberOf(expected)) << i;
    ASSERT_EQ(NumberOf(item.to), NumberOf(keep_alive->own().range().base));
    ASSERT_EQ(item.bytes, GpuKeepAlive::kBytes);
  }
}

TEST_P(GpuKeepAliveTest, WithoutMemoryOfOthersItReadsItsOwn) {
  if (!HasFailures()) GTEST_SKIP() << "on the fake driver alone";
  const Failing failing(kPieces);
  const auto keep_alive = *GpuKeepAlive::Create(gpus_);
  EXPECT_TRUE(keep_alive->others().empty());
  EXPECT_EQ(NumberOf(keep_alive->Next().from),
            NumberOf(keep_alive->own().range().base) + GpuKeepAlive::kBytes);
}

TEST_P(GpuKeepAliveTest, AfterAnErrorItReadsNoMoreAndCopies) {
  if (!HasFailures()) GTEST_SKIP() << "on the fake driver alone";
  for (const char* calls : {kCopies, kMarks}) {
    SCOPED_TRACE(calls);
    OtherLoop other(gpus_, /*last=*/1);
    other.RunForAWhile(calls);
    EXPECT_EQ(other.loop.keep_alive(), nullptr);
  }
  {
    const Failing failing(kCopies);
    doorbell_.last.value = 1;
    Pause();
  }
  ExpectThatItCopies();
}

TEST_P(GpuKeepAliveTest, WhatTheLastJobMovedCanBeTakenAway) {
  ExpectThatItCopies();
  Pause();
  EXPECT_TRUE(mappings_.Remove(kSource));
  EXPECT_TRUE(mappings_.Remove(kDestination));
  Pause();
  End();
  EXPECT_NE(PartRead(), kNone);
}

// Whatever a read is at when they come.
TEST_P(GpuKeepAliveTest, JobsThatComeMeanwhileAreDoneOnceAndInOrder) {
  std::vector<BlockPlaces> places;
  for (uint64_t i = 0; i < 200; ++i) {
    const BlockPlaces place = {i * 512, (199 - i) * 512};
    places.push_back(place);
    CopySegment listed = Plain(0, 0, 512);
    listed.places = {&place, 1};
    Post(i, {listed});
    if (i % 3 == 0) Post(1000 + i, {OfHost()});
    const Completion done = Await();
    ASSERT_TRUE(done.ok);
    ASSERT_EQ(done.tag, i);
    if (i % 3 == 0) {
      ASSERT_EQ(Await().tag, 1000 + i);
    }
    std::this_thread::sleep_for(microseconds(400 + 13 * i));
  }
  Completion none;
  EXPECT_EQ(pool_.TakeCompletion(&none), RingTake::kEmpty);
  ExpectMoved(places, 512);
}

INSTANTIATE_BY_EITHER_MEANS(GpuKeepAliveTest);

class GpuKeepAliveShortOfMemoryTest : public GpuKeepAliveTest {
 protected:
  void BeforeRun() override {
    const Failing failing(kAllocations);
    GpuKeepAliveTest::BeforeRun();
  }
};

TEST_P(GpuKeepAliveShortOfMemoryTest, ItCopiesAllTheSame) {
  if (!HasFailures()) GTEST_SKIP() << "on the fake driver alone";
  EXPECT_EQ(loop_.keep_alive(), nullptr);
  Pause();
  ExpectThatItCopies();
}

INSTANTIATE_BY_EITHER_MEANS(GpuKeepAliveShortOfMemoryTest);

// One that failed, or that the GPU does not get done.
TEST_P(GpuKeepAliveTest, AfterAnErrorItHoldsNothing) {
  if (!HasFailures()) GTEST_SKIP() << "on the fake driver alone";
  ExpectThatItCopies();
  {
    const Failing failing(GetParam() == GpuMeans::kKernel ? kMarks : kCopies);
    Pause();
  }
  EXPECT_TRUE(mappings_.Remove(kSource));
  EXPECT_TRUE(mappings_.Remove(kDestination));
  End();
  EXPECT_EQ(loop_.keep_alive(), nullptr);
}

TEST_P(GpuKeepAliveTest, NoJobWaitsForItOrFailsWithIt) {
  if (!HasFailures()) GTEST_SKIP() << "on the fake driver alone";
  for (const char* asked : {"cuEventQuery=600,hipEventQuery=600",  // it is not done
                            "cuEventQuery=999,hipEventQuery=999"}) {
    SCOPED_TRACE(asked);
    ExpectThatItCopies();
    const Failing failing(asked);
    for (uint64_t i = 0; i < 20; ++i) {
      std::this_thread::sleep_for(microseconds(700));
      Post(i, {OfHost()});
      const Completion done = Await();
      ASSERT_TRUE(done.ok);
      ASSERT_EQ(done.tag, i);
    }
    Pause();
  }
  End();
  EXPECT_EQ(loop_.keep_alive(), nullptr);
}

// Looks for work for a while, and sleeps.
class GpuKeepAliveThenSleepTest : public GpuKeepAliveTest {
 protected:
  GpuKeepAliveThenSleepTest() : GpuKeepAliveTest(milliseconds(5)) {}
};

TEST_P(GpuKeepAliveThenSleepTest, WhoSleepsHoldsNothing) {
  ExpectThatItCopies();
  Pause();
  while (memory_->worker_sleeps.value.load() == 0) std::this_thread::yield();
  EXPECT_TRUE(mappings_.Remove(kSource));
  EXPECT_TRUE(mappings_.Remove(kDestination));
  End();
  EXPECT_NE(PartRead(), kNone);
}

INSTANTIATE_BY_EITHER_MEANS(GpuKeepAliveThenSleepTest);

class GpuWakeTest : public GpuKeepAliveTest {
 protected:
  GpuWakeTest() : GpuKeepAliveTest(nanoseconds(0)) {}

  // Returns when it sleeps again.
  void SendWakeHint() {
    std::atomic<uint32_t>& sleeps = memory_->worker_sleeps.value;
    while (sleeps == 0) std::this_thread::yield();
    ++doorbell_.wake_hints.value;
    sleeps = 0;
    FutexWake(sleeps, 1);
    while (sleeps == 0) std::this_thread::yield();
  }
};

TEST_P(GpuWakeTest, WhoIsWokenAfterAPauseReadsOnce) {
  ExpectThatItCopies();
  Pause();
  SendWakeHint();
  End();
  EXPECT_EQ(PartRead(), 0);
}

TEST_P(GpuWakeTest, WhoIsWokenReadsThoughWhatWasMovedHasGone) {
  ExpectThatItCopies();
  EXPECT_TRUE(mappings_.Remove(kSource));
  EXPECT_TRUE(mappings_.Remove(kDestination));
  Pause();
  SendWakeHint();
  End();
  EXPECT_EQ(PartRead(), 0);
}

TEST_P(GpuWakeTest, WhereAnotherCopiedLastItReadsNothing) {
  ExpectThatItCopies();
  doorbell_.last.value = 2;
  Pause();
  SendWakeHint();
  End();
  EXPECT_EQ(PartRead(), kNone);
}

TEST_P(GpuWakeTest, WhoSleepsReadsNothing) {
  ExpectThatItCopies();
  Pause();
  End();
  EXPECT_EQ(PartRead(), kNone);
}

TEST_P(GpuWakeTest, WhoNeverCopiedReadsNothing) {
  Pause();
  SendWakeHint();
  End();
  EXPECT_EQ(PartRead(), kNone);
}

INSTANTIATE_BY_EITHER_MEANS(GpuWakeTest);

}  // namespace
}  // namespace gantry::worker
