// Timelines and pinned arenas through the C interface, over a sidecar that only answers. On the
// fake in every run; tests/gpu/run runs it on the vendor's driver, but for what only the fake can
// be made to do (FakeGpu*).
#include "client/timeline/timeline.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <barrier>
#include <thread>
#include <vector>

#include "client/include/gantry_memory.h"
#include "client/include/gantry_timeline.h"
#include "tests/client/gpu_client_fixture.h"
#include "tests/contracts/gpu_streams.h"

namespace gantry::client {
namespace {

using gpu::StreamHandle;
using testing::GpuStreams;

class TimelineTest : public GpuClientTest {
 protected:
  void SetUp() override {
    GpuClientTest::SetUp();
    streams_ = GpuStreams::On(0).value();
    ASSERT_OK(gantry_timeline_create(it_.client, 0, &timeline_));
  }
  void TearDown() override {
    gantry_timeline_destroy(timeline_);
    streams_.reset();
    EXPECT_TRUE(Eventually([] { return Timeline::FreeQuietPages() == 0; }));
  }
  gantry_fence Signal(StreamHandle stream) {
    gantry_fence fence = {};
    EXPECT_OK(gantry_timeline_signal_stream(timeline_, HandleOf(stream), &fence));
    return fence;
  }
  // As the sidecar sees it: by the descriptor that it was given last.
  uint64_t Counter(const gantry_fence& fence) {
    const struct stat given = it_.sidecar.fds_received().back();
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      const int fd = std::stoi(entry.path().filename());
      struct stat found = {};
      if (::fstat(fd, &found) != 0 || found.st_ino != given.st_ino ||
          found.st_dev != given.st_dev) {
        continue;
      }
      uint64_t value = 0;
      EXPECT_EQ(::pread(fd, &value, sizeof(value), static_cast<off_t>(fence.offset)), 8);
      return value;
    }
    ADD_FAILURE() << "the descriptor is gone";
    return 0;
  }
  bool IsReached(const gantry_fence& fence) { return Counter(fence) >= fence.value; }
  static bool Eventually(const std::function<bool()>& condition) {
    for (int i = 0; i < 500 && !condition(); ++i) {
      std::this_thread::sleep_for(milliseconds(10));
    }
    return condition();
  }

  std::unique_ptr<GpuStreams> streams_;
  gantry_timeline* timeline_ = nullptr;
};

TEST_F(TimelineTest, AFenceIsReachedWhenTheStreamIs) {
  const StreamHandle stream = streams_->New().value();
  ASSERT_TRUE(streams_->Hold(stream));
  const gantry_fence first = Signal(stream);
  const gantry_fence second = Signal(stream);
  EXPECT_EQ(first.buffer, gantry_timeline_buffer(timeline_));
  EXPECT_EQ(first.offset, second.offset);
  EXPECT_LT(first.value, second.value);
  EXPECT_GE(first.value, 1U);
  std::this_thread::sleep_for(milliseconds(30));
  EXPECT_FALSE(IsReached(first));
  streams_->LetGo();
  EXPECT_TRUE(Eventually([&] { return IsReached(second); }));
  EXPECT_TRUE(IsReached(first));
}

// With one counter for both, the second stream's value would say that the first is done.
TEST_F(TimelineTest, AStreamThatIsFasterSaysNothingOfAnother) {
  const StreamHandle slow = streams_->New().value();
  const StreamHandle fast = streams_->New().value();
  ASSERT_TRUE(streams_->Hold(slow));
  const gantry_fence late = Signal(slow);
  const gantry_fence soon = Signal(fast);
  gantry_fence host = {};
  ASSERT_OK(gantry_timeline_signal(timeline_, &host));
  EXPECT_TRUE(IsReached(host));
  EXPECT_TRUE(Eventually([&] { return IsReached(soon); }));
  EXPECT_FALSE(IsReached(late));
  streams_->LetGo();
  EXPECT_TRUE(Eventually([&] { return IsReached(late); }));
  EXPECT_TRUE(IsReached(soon));
}

TEST_F(TimelineTest, DefaultStreamsSignalToo) {
  for (const uint64_t handle : {0, 1, 2}) {
    const gantry_fence fence = Signal(StreamHandle{handle});
    EXPECT_TRUE(Eventually([&] { return IsReached(fence); })) << handle;
  }
}

// Calls `work` in four threads, as often in each, and none begins before all are there.
template <typename Work>
void InManyThreads(int times, Work work) {
  std::barrier together(4);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      together.arrive_and_wait();
      for (int j = 0; j < times; ++j) work(i);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(TimelineTest, TheHostSignalsWhatIsDoneFromManyThreads) {
  constexpr int kTimes = 50'000;
  std::array<std::vector<uint64_t>, 4> values;
  InManyThreads(kTimes, [&](int thread) {
    gantry_fence fence = {};
    gantry_error_destroy(gantry_timeline_signal(timeline_, &fence));
    values[static_cast<size_t>(thread)].push_back(fence.value);
  });
  std::vector<uint64_t> all;
  for (const auto& mine : values) {
    EXPECT_TRUE(std::is_sorted(mine.begin(), mine.end()));
    all.insert(all.end(), mine.begin(), mine.end());
  }
  std::sort(all.begin(), all.end());
  EXPECT_EQ(std::unique(all.begin(), all.end()), all.end()) << "a value was given twice";
  EXPECT_EQ(all.back(), uint64_t{4 * kTimes});
}

TEST_F(TimelineTest, ManyThreadsSignalOneStreamInTheOrderOfTheirValues) {
  const StreamHandle stream = streams_->New().value();
  for (uint64_t round = 1; round <= 25; ++round) {
    std::array<gantry_fence, 4> last = {};
    InManyThreads(20, [&](int thread) {
      gantry_fence& mine = last[static_cast<size_t>(thread)];
      gantry_error_destroy(gantry_timeline_signal_stream(timeline_, HandleOf(stream), &mine));
    });
    EXPECT_TRUE(streams_->Synchronize(stream));
    // The value that was written last is the highest, and that is as many as there were signals.
    ASSERT_EQ(Counter(last[0]), round * 4 * 20);
    for (const gantry_fence& fence : last) EXPECT_TRUE(IsReached(fence));
  }
}

TEST_F(TimelineTest, CountersOfStreamsThatAreDoneAreUsedAgainAndNeverGoBack) {
  std::map<uint64_t, uint64_t> values;  // by offset
  for (int i = 0; i < 700; ++i) {       // more than there are counters
    auto mine = GpuStreams::On(0).value();
    const StreamHandle stream = mine->New().value();
    const gantry_fence fence = Signal(stream);
    EXPECT_GT(fence.value, values[fence.offset]);
    values[fence.offset] = fence.value;
    EXPECT_LT(fence.offset, CounterPage::kBytes);
    ASSERT_TRUE(mine->Synchronize(stream));
    EXPECT_TRUE(IsReached(fence));
  }
}

TEST_F(TimelineTest, WhatIsWaitedForKeepsItsCounter) {
  const StreamHandle stream = streams_->New().value();
  ASSERT_TRUE(streams_->Hold(stream));
  const gantry_fence late = Signal(stream);
  for (int i = 0; i < 20; ++i) {
    const StreamHandle other = streams_->New().value();
    EXPECT_NE(Signal(other).offset, late.offset);
  }
  streams_->LetGo();
}

TEST_F(TimelineTest, ItsPageOutlivesItUntilItsStreamsHaveWritten) {
  const StreamHandle stream = streams_->New().value();
  ASSERT_TRUE(streams_->Hold(stream));
  Signal(stream);
  gantry_timeline_destroy(std::exchange(timeline_, nullptr));
  EXPECT_EQ(Timeline::FreeQuietPages(), 1U);
  streams_->LetGo();
  // A write to memory that is unpinned would be an error of the stream.
  EXPECT_TRUE(streams_->Synchronize(stream));
  EXPECT_TRUE(Eventually([&] { return Timeline::FreeQuietPages() == 0; }));
  ASSERT_OK(gantry_timeline_create(it_.client, 0, &timeline_));
  const gantry_fence fence = Signal(stream);
  EXPECT_TRUE(Eventually([&] { return IsReached(fence); }));
}

TEST_F(TimelineTest, AChildOfForkLeavesThePagesOfItsParentAlone) {
  const StreamHandle stream = streams_->New().value();
  ASSERT_TRUE(streams_->Hold(stream));
  Signal(stream);
  gantry_timeline_destroy(std::exchange(timeline_, nullptr));
  int pipe[2];
  ASSERT_EQ(::pipe(pipe), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    char go = 0;
    const bool told = ::read(pipe[0], &go, 1) == 1;
    ::_exit(told && Timeline::FreeQuietPages() == 1 ? 0 : 1);
  }
  streams_->LetGo();
  EXPECT_TRUE(streams_->Synchronize(stream));
  EXPECT_TRUE(Eventually([&] { return Timeline::FreeQuietPages() == 0; }));
  ASSERT_EQ(::write(pipe[1], "x", 1), 1);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  ::close(pipe[0]);
  ::close(pipe[1]);
}

TEST_F(TimelineTest, WhatItRegistersIsOnePageThatNobodyElseMayTouch) {
  const json body = LastBody();
  EXPECT_EQ(body["buffers"][0]["access"], json::array());
  EXPECT_EQ(body["buffers"][0]["pieces"],
            json::parse(R"([{"allocation":0,"offset":0,"length":4096}])"));
  EXPECT_EQ(gantry_buffer_bytes(gantry_timeline_buffer(timeline_)), 4096U);
}

TEST_F(TimelineTest, ACapturedStreamIsAConflict) {
  const StreamHandle stream = streams_->New().value();
  ASSERT_TRUE(streams_->BeginCapture(stream));
  gantry_fence fence = {};
  EXPECT_EQ(CodeOf(gantry_timeline_signal_stream(timeline_, HandleOf(stream), &fence)), "conflict");
  EXPECT_TRUE(streams_->EndCapture(stream));
  const gantry_fence later = Signal(stream);
  EXPECT_TRUE(Eventually([&] { return IsReached(later); }));
}

TEST_F(TimelineTest, WithoutAGpuOnlyTheHostSignals) {
  gantry_timeline* hosts = nullptr;
  ASSERT_OK(gantry_timeline_create(it_.client, GANTRY_NO_GPU, &hosts));
  gantry_fence fence = {};
  EXPECT_EQ(CodeOf(gantry_timeline_signal_stream(hosts, nullptr, &fence)), "invalid_argument");
  ASSERT_OK(gantry_timeline_signal(hosts, &fence));
  EXPECT_EQ(fence.value, 1U);
  EXPECT_TRUE(IsReached(fence));
  EXPECT_EQ(CodeOf(gantry_timeline_signal(hosts, nullptr)), "invalid_argument");
  gantry_timeline_destroy(hosts);
}

TEST_F(TimelineTest, WrongArgumentsAndAClosedClient) {
  gantry_timeline* none = nullptr;
  EXPECT_EQ(CodeOf(gantry_timeline_create(it_.client, 99, &none)), "invalid_argument");
  EXPECT_EQ(CodeOf(gantry_timeline_create(it_.client, 0, nullptr)), "invalid_argument");
  EXPECT_EQ(CodeOf(gantry_timeline_create(nullptr, 0, &none)), "invalid_argument");
  ASSERT_OK(gantry_client_close(it_.client));
  gantry_fence fence = {};
  EXPECT_EQ(CodeOf(gantry_timeline_signal(timeline_, &fence)), "cancelled");
  EXPECT_EQ(CodeOf(gantry_timeline_signal_stream(timeline_, nullptr, &fence)), "cancelled");
  EXPECT_EQ(CodeOf(gantry_timeline_create(it_.client, 0, &none)), "cancelled");
}

TEST_F(TimelineTest, OneThatTheSidecarRefusesLeavesNothingBehind) {
  const size_t fds = OpenFds();
  const size_t released = it_.sidecar.tokens_released().size();
  it_.sidecar.On("/v1/buffers",
                 [](const FakeRequest&) { return FakeSidecar::Problem(409, "conflict", "taken"); });
  gantry_timeline* refused = nullptr;
  EXPECT_EQ(CodeOf(gantry_timeline_create(it_.client, 0, &refused)), "conflict");
  EXPECT_EQ(refused, nullptr);
  EXPECT_EQ(it_.sidecar.tokens_released().size(), released + 1);
  EXPECT_EQ(OpenFds(), fds);
  EXPECT_EQ(Timeline::FreeQuietPages(), 0U);  // unpinned
  Signal(StreamHandle{0});                    // the one that is there goes on
}

// Pinned arenas.

class PinnedArena : public GpuClientTest {
 protected:
  MemoryOrigin OriginOf(const void* address) {
    return driver_->Resolve(reinterpret_cast<uint64_t>(address)).value().origin;
  }
};

TEST_F(PinnedArena, AGpuFindsItAtItsDeviceAddress) {
  gantry_device_address at = {};
  ASSERT_OK(gantry_arena_pin(it_.arena, 0, &at));
  const auto device = Make(MemoryOrigin::kDevice, kMiB);
  auto* host = static_cast<uint8_t*>(gantry_arena_data(it_.arena));
  for (size_t i = 0; i < kMiB; ++i) host[i] = static_cast<uint8_t>(i % 251);
  auto stream = context_->NewStream().value();
  ASSERT_TRUE(stream->Copy(device.base, gpu::DeviceAddress{at.number}, kMiB));
  ASSERT_TRUE(stream->Fill(gpu::DeviceAddress{at.number} + 5, 7, 1));
  ASSERT_TRUE(stream->Synchronize());
  std::vector<uint8_t> found(kMiB);
  ASSERT_TRUE(context_->CopyToHost(found.data(), device.base, kMiB));
  EXPECT_EQ(host[5], 7);
  host[5] = 5;
  EXPECT_TRUE(std::equal(found.begin(), found.end(), host));
  // Again is no error, and the same place; another GPU is one.
  gantry_device_address again = {};
  ASSERT_OK(gantry_arena_pin(it_.arena, 0, &again));
  EXPECT_EQ(again.number, at.number);
  EXPECT_EQ(CodeOf(gantry_arena_pin(it_.arena, 1, nullptr)), "conflict");
}

TEST_F(PinnedArena, ItIsUnpinnedBeforeItsMemoryGoes) {
  void* const data = gantry_arena_data(it_.arena);
  ASSERT_OK(gantry_arena_pin(it_.arena, 0, nullptr));
  EXPECT_EQ(OriginOf(data), MemoryOrigin::kPinned);
  ASSERT_OK(gantry_arena_unpin(it_.arena));
  ASSERT_OK(gantry_arena_unpin(it_.arena));
  EXPECT_EQ(OriginOf(data), MemoryOrigin::kUnknown);
  ASSERT_OK(gantry_arena_pin(it_.arena, 0, nullptr));
  ASSERT_OK(gantry_arena_close(it_.arena, 0));  // the memory is there until it is destroyed
  EXPECT_EQ(OriginOf(data), MemoryOrigin::kUnknown);
  EXPECT_EQ(CodeOf(gantry_arena_pin(it_.arena, 0, nullptr)), "unregistered");
}

TEST_F(PinnedArena, ABufferThatKeepsItDoesNotKeepItPinned) {
  gantry_arena* arena = nullptr;
  ASSERT_OK(gantry_arena_create(it_.client, kMiB, &arena));
  void* const data = gantry_arena_data(arena);
  ASSERT_OK(gantry_arena_pin(arena, 0, nullptr));
  gantry_buffer* buffer = nullptr;
  ASSERT_OK(Register("b", data, 100, &buffer));
  gantry_arena_destroy(arena);
  EXPECT_EQ(OriginOf(data), MemoryOrigin::kUnknown);
  gantry_buffer_destroy(buffer);
}

TEST_F(PinnedArena, MemoryOfItIsRegisteredAsTheHosts) {
  gantry_device_address at = {};
  ASSERT_OK(gantry_arena_pin(it_.arena, 0, &at));
  gantry_buffer* buffer = nullptr;
  ASSERT_OK(Register("b", gantry_arena_data(it_.arena), 100, &buffer));
  EXPECT_EQ(LastBody()["allocations"][0]["kind"], "host");
  gantry_buffer_destroy(buffer);
}

TEST_F(PinnedArena, WhatCannotBePinnedIsSaid) {
  EXPECT_EQ(CodeOf(gantry_arena_pin(it_.arena, 99, nullptr)), "invalid_argument");
  EXPECT_EQ(CodeOf(gantry_arena_pin(nullptr, 0, nullptr)), "invalid_argument");
  int fd = -1;
  ASSERT_OK(gantry_memfd_create("x", kMiB, &fd));
  const UniqueFd owned(fd);
  const UniqueFd read_only(
      ::open(("/proc/self/fd/" + std::to_string(fd)).c_str(), O_RDONLY | O_CLOEXEC));
  gantry_arena* arena = nullptr;
  ASSERT_OK(gantry_arena_adopt(it_.client, read_only.get(), kMiB, nullptr, &arena));
  EXPECT_EQ(CodeOf(gantry_arena_pin(arena, 0, nullptr)), "fd_read_only");
  gantry_arena_destroy(arena);
}

// Where a GPU finds an arena does not follow from where the host does.
TEST_F(PinnedArena, FakeGpuTheDeviceAddressIsAnotherNumber) {
  gantry_device_address at = {};
  ASSERT_OK(gantry_arena_pin(it_.arena, 0, &at));
  EXPECT_NE(at.number, reinterpret_cast<uint64_t>(gantry_arena_data(it_.arena)));
  // And it is none that could be registered.
  gantry_buffer* buffer = nullptr;
  EXPECT_EQ(CodeOf(Register("b", reinterpret_cast<void*>(at.number), 100, &buffer)),
            "not_exportable");
}

}  // namespace
}  // namespace gantry::client
