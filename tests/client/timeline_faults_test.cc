// Timelines and pinned arenas where the driver does not let go of memory, has lost its context, or
// takes no more work; and where the sidecar keeps a buffer. tests/gpu/run runs it on the vendor's
// driver, but for what only the fake can be made to do (FakeGpu*).
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <fstream>
#include <thread>

#include "client/include/gantry_memory.h"
#include "client/include/gantry_timeline.h"
#include "client/timeline/timeline.h"
#include "lib/base/dynamic_library.h"
#include "lib/gpu/cuda/cuda_abi.h"
#include "tests/client/gpu_client_fixture.h"
#include "tests/contracts/gpu_streams.h"

namespace gantry::client {
namespace {

using gpu::StreamHandle;
namespace cuda = gpu::cuda;
using testing::GpuStreams;

#define HOLDS(condition)                         \
  if (!(condition)) {                            \
    std::fprintf(stderr, "not: %s", #condition); \
    ::_exit(1);                                  \
  }

// Of a memfd by its name.
int MappingsOf(const std::string& name) {
  std::ifstream maps("/proc/self/maps");
  int found = 0;
  for (std::string line; std::getline(maps, line);) {
    if (line.find("memfd:" + name) != std::string::npos) ++found;
  }
  return found;
}

bool Eventually(const std::function<bool()>& condition) {
  for (int i = 0; i < 500 && !condition(); ++i) std::this_thread::sleep_for(milliseconds(10));
  return condition();
}

// Each case is a process of its own, whose driver reads its settings at the first call.
class FakeGpuTimelineDeathTest : public ::testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
  static void With(const char* failures) { ::setenv("GANTRY_FAKE_GPU_FAIL", failures, 1); }
};

// The driver's part in those processes.
struct Gpu {
  std::unique_ptr<gpu::GpuDriver> driver = gpu::LoadGpuDriver().value();
  std::unique_ptr<gpu::GpuContext> context = driver->OpenContext(0).value();
  std::unique_ptr<GpuStreams> streams = GpuStreams::On(0).value();
};

TEST_F(FakeGpuTimelineDeathTest, AnArenaThatCannotBeUnpinnedStaysMapped) {
  EXPECT_EXIT(
      {
        With("cuMemHostUnregister=999,hipHostUnregister=999");
        Gpu gpu;
        OpenClient it;
        const int before = MappingsOf("gantry-arena");
        HOLDS(CodeOf(gantry_arena_pin(it.arena, 0, nullptr)).empty());
        const int pinned = MappingsOf("gantry-arena");  // the fake's device has one more
        HOLDS(pinned == before + 1);
        HOLDS(CodeOf(gantry_arena_unpin(it.arena)) == "device_error");
        HOLDS(CodeOf(gantry_arena_close(it.arena, 0)) == "device_error");
        HOLDS(CodeOf(gantry_arena_close(it.arena, 0)) == "device_error");
        gantry_arena_destroy(std::exchange(it.arena, nullptr));
        HOLDS(MappingsOf("gantry-arena") == pinned);
        ::_exit(0);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST_F(FakeGpuTimelineDeathTest, APageThatCannotBeUnpinnedStaysMapped) {
  EXPECT_EXIT(
      {
        With("cuMemHostUnregister=999,hipHostUnregister=999");
        Gpu gpu;
        OpenClient it;
        gantry_timeline* timeline = nullptr;
        HOLDS(CodeOf(gantry_timeline_create(it.client, 0, &timeline)).empty());
        const int pinned = MappingsOf("gantry-timeline");
        HOLDS(pinned == 2);
        gantry_timeline_destroy(timeline);
        HOLDS(Timeline::FreeQuietPages() == 1);
        HOLDS(MappingsOf("gantry-timeline") == pinned);
        ::_exit(0);
      },
      ::testing::ExitedWithCode(0), "");
}

// Its streams never write: what they were given went with the context. AMD's runtime gives contexts
// no numbers by which one that was reset would be known.
TEST_F(FakeGpuTimelineDeathTest, PagesOfAContextThatHasEndedAreFreedWithTheNextClient) {
  EXPECT_EXIT(
      {
        Gpu gpu;
        OpenClient it;
        gantry_timeline* timeline = nullptr;
        gantry_fence fence = {};
        HOLDS(CodeOf(gantry_timeline_create(it.client, 0, &timeline)).empty());
        const StreamHandle stream = gpu.streams->New().value();
        HOLDS(gpu.streams->Hold(stream));
        HOLDS(CodeOf(gantry_timeline_signal_stream(timeline, HandleOf(stream), &fence)).empty());
        gantry_timeline_destroy(timeline);
        HOLDS(Timeline::FreeQuietPages() == 1);
        cuda::Result (*reset)(cuda::Device) = nullptr;
        const auto library = DynamicLibrary::Open("libcuda.so.1").value();
        HOLDS(library.Bind("cuDevicePrimaryCtxReset_v2", &reset));
        HOLDS(reset(0) == cuda::kSuccess);
        HOLDS(CodeOf(gantry_client_close(it.client)).empty());
        HOLDS(MappingsOf("gantry-timeline") == 0);
        HOLDS(Timeline::FreeQuietPages() == 0);
        gpu.streams->LetGo();
        ::_exit(0);
      },
      ::testing::ExitedWithCode(0), "");
}

class TimelineFaults : public GpuClientTest {
 protected:
  void SetUp() override {
    GpuClientTest::SetUp();
    streams_ = GpuStreams::On(0).value();
  }
  void TearDown() override {
    streams_.reset();
    EXPECT_TRUE(Eventually([] { return Timeline::FreeQuietPages() == 0; }));
  }
  gantry_timeline* Make() {
    gantry_timeline* timeline = nullptr;
    EXPECT_OK(gantry_timeline_create(it_.client, 0, &timeline));
    return timeline;
  }
  std::unique_ptr<GpuStreams> streams_;
};

// A driver that has no room for more work of a stream lets whoever brings it wait.
TEST_F(TimelineFaults, FakeGpuAStreamThatTakesNoMoreDelaysNoOther) {
  gantry_timeline* const timeline = Make();
  const StreamHandle full = streams_->New().value();
  const StreamHandle other = streams_->New().value();
  ASSERT_TRUE(streams_->Hold(full));
  std::atomic<int> signals = 0;
  std::thread busy([&] {
    for (; signals < 2000; ++signals) {
      gantry_fence fence = {};
      gantry_error_destroy(gantry_timeline_signal_stream(timeline, HandleOf(full), &fence));
    }
  });
  int before = -1;
  EXPECT_TRUE(Eventually([&] {
    const int now = signals;
    std::this_thread::sleep_for(milliseconds(100));
    return now > 500 && std::exchange(before, now) == now;
  }));
  EXPECT_LT(before, 2000);
  std::atomic<bool> signalled = false;
  std::thread idle([&] {
    gantry_fence fence = {};
    EXPECT_OK(gantry_timeline_signal_stream(timeline, HandleOf(other), &fence));
    signalled = true;
  });
  EXPECT_TRUE(Eventually([&] { return signalled.load(); }));
  streams_->LetGo();
  idle.join();
  busy.join();
  EXPECT_TRUE(streams_->Synchronize(full));
  gantry_timeline_destroy(timeline);
}

TEST_F(TimelineFaults, NothingOfOneIsKeptForATransferThatStillWaitsForIt) {
  const size_t fds = OpenFds();
  gantry_timeline* const timeline = Make();
  it_.sidecar.On("/v1/buffers/", [](const FakeRequest&) {
    return FakeSidecar::Problem(409, "draining", "a transfer waits");
  });
  gantry_timeline_destroy(timeline);
  EXPECT_EQ(Timeline::FreeQuietPages(), 0U);
  EXPECT_EQ(MappingsOf("gantry-timeline"), 0);
  EXPECT_EQ(OpenFds(), fds);
}

TEST_F(TimelineFaults, AGraphThatAnotherThreadCapturesIsLeftAlone) {
  const StreamHandle captured = streams_->New().value();
  const StreamHandle other = streams_->New().value();
  ASSERT_TRUE(streams_->BeginCapture(captured));
  std::thread([&] {
    gantry_timeline* const timeline = Make();
    gantry_fence fence = {};
    EXPECT_OK(gantry_timeline_signal_stream(timeline, HandleOf(other), &fence));
    EXPECT_OK(gantry_arena_pin(it_.arena, 0, nullptr));
    EXPECT_OK(gantry_arena_unpin(it_.arena));
    gantry_timeline_destroy(timeline);
  }).join();
  EXPECT_TRUE(streams_->EndCapture(captured));
}

#undef HOLDS

}  // namespace
}  // namespace gantry::client
