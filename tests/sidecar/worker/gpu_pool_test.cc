// A pool whose workers use GPUs of the fake driver, which hangs, refuses or runs out of memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "sidecar/worker/pool/worker_pool.h"
#include "tests/fakes/test_arena.h"
#include "tests/sidecar/worker/gpu_pool_fixture.h"

namespace gantry::worker {
namespace {

TEST_F(GpuPoolTest, AStartThatHangsKeepsNoOtherWaiting) {
  WorkerPoolOptions options;
  options.start_timeout_ms = milliseconds(5'000);
  Start(options);
  DriverFails(kInitHangs);
  const TimePoint hung = Clock::now();
  Replace(0);
  DriverFails("");
  Replace(1);
  EXPECT_TRUE(Eventually([&] { return IsUsable(1); }, milliseconds(3'000)));
  EXPECT_FALSE(Worker(1).gpu.empty());
  EXPECT_EQ(Worker(0).state, WorkerState::kStarting) << "it should hang meanwhile";
  EXPECT_TRUE(Eventually([&] { return IsUsable(0); }));
  EXPECT_GE(Clock::now() - hung, options.start_timeout_ms);
  EXPECT_GE(Worker(0).restarts, 2U);
}

TEST_F(GpuPoolTest, StartsThatHangAreAwaitedTogether) {
  WorkerPoolOptions options;
  options.workers = 4;
  options.start_timeout_ms = milliseconds(1'000);
  DriverFails(kInitHangs);
  const TimePoint begin = Clock::now();
  Start(options);  // twice with the driver, and then without
  EXPECT_LT(Clock::now() - begin, milliseconds(4'000));
  for (int worker = 0; worker < 4; ++worker) {
    EXPECT_EQ(Worker(worker).gpu, "") << worker;
    EXPECT_TRUE(Worker(worker).asks_for_gpu) << worker;
    EXPECT_THAT(Worker(worker).no_gpu_because, ::testing::HasSubstr("without the GPU's driver"));
  }
  ASSERT_FALSE(pool_->gpus());
  EXPECT_THAT(pool_->gpus().error().message, ::testing::HasSubstr("without the GPU's driver"));
}

TEST_F(GpuPoolTest, AWorkerThatStartedWithoutTheDriverAsksAgainAfterTheLongestPause) {
  WorkerPoolOptions options;
  // A start and an answer of a driver that is well take milliseconds; on a busy machine, more.
  options.start_timeout_ms = milliseconds(3'000);
  options.gpu_retry_min_ms = milliseconds(10);
  options.gpu_retry_max_ms = milliseconds(1'500);
  options.map_timeout_ms = milliseconds(2'000);
  Start(options);
  DriverFails(kInitHangs);
  Replace(0);
  ASSERT_TRUE(Eventually([&] { return IsUsable(0); }));
  EXPECT_EQ(Worker(0).restarts, 3U);
  const TimePoint without = Clock::now();
  // It hangs again, is killed, and starts without at once.
  ASSERT_TRUE(Eventually([&] { return Worker(0).restarts == 4; }));
  EXPECT_GE(Clock::now() - without, milliseconds(1'400));
  DriverFails("");
  ASSERT_TRUE(Eventually([&] { return IsUsable(0); }));
  EXPECT_THAT(Worker(0).no_gpu_because, ::testing::HasSubstr("without the GPU's driver"));
  // The driver of the next one is well, but that has to be found out by the same way.
  Replace(0);
  ASSERT_TRUE(Eventually([&] { return IsUsable(0); }));
  const WorkerStatus before = Worker(0);
  EXPECT_TRUE(before.gpu.empty());
  ASSERT_TRUE(Eventually([&] { return !Worker(0).gpu.empty(); }));
  EXPECT_EQ(Worker(0).pid, before.pid);
  Replace(0);  // its successor is trusted
  ASSERT_TRUE(Eventually([&] { return IsUsable(0); }));
  EXPECT_FALSE(Worker(0).gpu.empty());
}

// Memory of the host is mapped and copied by it meanwhile, as by the others.
TEST_F(GpuPoolTest, AWorkerWhoseDriverHangsWhenItAsksAgainKeepsNobodyWaiting) {
  WorkerPoolOptions options;
  options.start_timeout_ms = milliseconds(500);
  options.gpu_retry_min_ms = milliseconds(10);
  options.gpu_retry_max_ms = milliseconds(200);
  options.map_timeout_ms = milliseconds(4'000);
  Start(options);
  DriverFails(kInitHangs);
  Replace(0);
  ASSERT_TRUE(Eventually([&] { return IsUsable(0) && Worker(0).asks_for_gpu; }));
  const WorkerStatus before = Worker(0);
  std::this_thread::sleep_for(milliseconds(400));  // it asks
  memory::AllocationSource source;
  const testing::TestArena arena(1 << 20);
  source.fd = std::make_shared<UniqueFd>(arena.Fd());
  source.size = arena.size();
  source.writable = true;
  const TimePoint begin = Clock::now();
  const auto mapped = pool_->Map(source);
  ASSERT_TRUE(mapped) << mapped.error().message;
  const CopySegment segment = {*mapped, *mapped, 0, 4096, 4096, 0, 0, 1};
  ASSERT_TRUE(pool_->Post(0, 5, {&segment, 1}));
  Completion completion;
  while (pool_->Poll({&completion, 1}) == 0) std::this_thread::yield();
  EXPECT_TRUE(completion.ok);
  EXPECT_LT(Clock::now() - begin, milliseconds(2'000));
  EXPECT_EQ(Worker(0).pid, before.pid);
  EXPECT_EQ(Worker(0).mappings, 1U);
  // Its driver does hang: it is replaced in the end.
  EXPECT_TRUE(Eventually([&] { return Worker(0).restarts > before.restarts; }));
}

TEST_F(GpuPoolTest, WhyThereIsNoGpuIsSaidByTheLowestWorkerAndGpusAreInTheDriversOrder) {
  GpuRegistry registry;
  registry.Take(3, {{}, {}, Fail(ErrorCode::kPathUnavailable, "no turn")});
  registry.Take(0, {{}, {}, Fail(ErrorCode::kResourceExhausted, "no memory")});
  registry.Take(1, {{}, {}, Fail(ErrorCode::kPathUnavailable, "no turn")});
  EXPECT_EQ(registry.gpus().error().message, "no memory");
  const Greeting of_second = {
      {{"GPU-b", true, "0000:1b:00.0"}, {"GPU-c", true}, {"GPU-a", true, "0000:0a:00.0"}},
      {},
      {},
      {/*one_attach_at_a_time=*/true, /*handles_stay_in_pod=*/false}};
  const Greeting as_said = GreetingOf({}, TextOf(of_second, 1000));
  EXPECT_EQ(registry.PciAddressOf("GPU-a"), "") << "nobody has said";
  EXPECT_FALSE(registry.sharing().one_attach_at_a_time) << "nobody has said";
  EXPECT_EQ(registry.Take(4, as_said).place, 1);
  EXPECT_TRUE(registry.sharing().one_attach_at_a_time);
  EXPECT_FALSE(registry.sharing().handles_stay_in_pod);
  EXPECT_EQ(registry.PciAddressOf("GPU-a"), "0000:0a:00.0");
  EXPECT_EQ(registry.PciAddressOf("GPU-b"), "0000:1b:00.0");
  EXPECT_EQ(registry.PciAddressOf("GPU-c"), "");
  EXPECT_EQ(registry.PciAddressOf("GPU-d"), "");
  EXPECT_THAT(*registry.gpus(), ::testing::ElementsAre("GPU-a", "GPU-b", "GPU-c"));
}

}  // namespace
}  // namespace gantry::worker
