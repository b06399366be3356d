// A pool whose workers use GPUs of the fake driver, which hangs, refuses or runs out of memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "lib/gpu/gpu_drivers.h"
#include "sidecar/memory/gpu_handle_file.h"
#include "sidecar/worker/copy_worker.h"
#include "sidecar/worker/worker_pool.h"
#include "tests/fakes/fake_gpu_folder.h"
#include "tests/fakes/test_arena.h"

namespace gantry::worker {
namespace {

// Of whichever vendor's driver the test runs on.
constexpr char kInitHangs[] = "cuInit=-2,hipInit=-2";
constexpr char kAttachHangs[] = "cuIpcOpenMemHandle=-2,hipIpcOpenMemHandle=-2";
constexpr char kNoContext[] = "cuDevicePrimaryCtxRetain=2,primary_context=2";

class GpuPoolTest : public ::testing::Test {
 protected:
  void TearDown() override { DriverFails(""); }

  // What the driver does in workers that are started from here on.
  static void DriverFails(const std::string& calls) {
    ::setenv("GANTRY_FAKE_GPU_FAIL", calls.c_str(), 1);
  }
  void Start(WorkerPoolOptions options = {}) {
    options.restart_backoff_min_ms = milliseconds(1);
    options.restart_backoff_max_ms = milliseconds(20);
    auto pool = WorkerPool::Create(options);
    ASSERT_TRUE(pool) << pool.error().message;
    pool_ = *std::move(pool);
  }
  WorkerStatus Worker(int index) const { return pool_->workers()[static_cast<size_t>(index)]; }
  // As the engine does: it settles what is left of dead workers.
  bool Eventually(const std::function<bool()>& holds, milliseconds longest = milliseconds(20'000)) {
    const TimePoint end = Clock::now() + longest;
    Completion completion;
    while (!holds() && Clock::now() < end) {
      pool_->Poll({&completion, 1});
      std::this_thread::sleep_for(milliseconds(2));
    }
    return holds();
  }
  bool IsUsable(int index) const { return Worker(index).state == WorkerState::kUsable; }
  // Kills it; another process takes its place.
  void Replace(int index) {
    const WorkerStatus before = Worker(index);
    ASSERT_EQ(::kill(before.pid, SIGKILL), 0);
    ASSERT_TRUE(Eventually([&] {
      const WorkerStatus now = Worker(index);
      return now.pid != 0 && now.pid != before.pid;
    }));
  }

  std::unique_ptr<WorkerPool> pool_;
};

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
  options.start_timeout_ms = milliseconds(500);
  options.gpu_retry_min_ms = milliseconds(10);
  options.gpu_retry_max_ms = milliseconds(1'500);
  options.map_timeout_ms = milliseconds(300);
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
  GpuHomes homes;
  homes.Take(3, {{}, {}, Fail(ErrorCode::kPathUnavailable, "no turn")});
  homes.Take(0, {{}, {}, Fail(ErrorCode::kResourceExhausted, "no memory")});
  homes.Take(1, {{}, {}, Fail(ErrorCode::kPathUnavailable, "no turn")});
  EXPECT_EQ(homes.gpus().error().message, "no memory");
  const Greeting of_second = {
      {{"GPU-b", true, "0000:1b:00.0"}, {"GPU-c", true}, {"GPU-a", true, "0000:0a:00.0"}}, {}, {}};
  const Greeting as_said = GreetingOf({}, TextOf(of_second, 1000));
  EXPECT_EQ(homes.PciAddressOf("GPU-a"), "") << "nobody has said";
  EXPECT_EQ(homes.Take(4, as_said).place, 1);
  EXPECT_EQ(homes.PciAddressOf("GPU-a"), "0000:0a:00.0");
  EXPECT_EQ(homes.PciAddressOf("GPU-b"), "0000:1b:00.0");
  EXPECT_EQ(homes.PciAddressOf("GPU-c"), "");
  EXPECT_EQ(homes.PciAddressOf("GPU-d"), "");
  EXPECT_THAT(*homes.gpus(), ::testing::ElementsAre("GPU-a", "GPU-b", "GPU-c"));
}

// Memory of both GPUs, in another process, as the workers open it.
class GpuPoolMemory : public GpuPoolTest {
 protected:
  static constexpr uint64_t kMiB = 1 << 20;

  void SetUp() override {
    driver_ = *gpu::LoadGpuDriver();
    for (int gpu = 0; gpu < 2; ++gpu) contexts_.push_back(*driver_->OpenContext(gpu));
  }
  // All of the GPU's but `left`.
  std::unique_ptr<gpu::GpuMemory> TakeAllBut(uint64_t left, size_t gpu) {
    return *contexts_[gpu]->Allocate(contexts_[gpu]->Memory()->free - left);
  }
  memory::AllocationSource Source(const gpu::GpuMemory& memory) const {
    const gpu::PointerInfo info = *driver_->Resolve(NumberOf(memory.range().base));
    const gpu::IpcHandle handle = *driver_->ExportIpc(memory.range().base);
    memory::AllocationSource source;
    source.kind = wire::MemoryKind::kGpu;
    source.fd = std::make_shared<UniqueFd>(*memory::MakeHandleFile(
        {reinterpret_cast<const char*>(handle.bytes.data()), handle.bytes.size()}));
    source.size = memory.range().size;
    source.writable = true;
    source.gpu = {wire::GpuExport::kHandle,
                  driver_->devices()[static_cast<size_t>(info.device)].uuid, info.buffer_id,
                  ::getpid()};
    source.exporter = "the test";
    return source;
  }

  std::unique_ptr<gpu::GpuDriver> driver_;
  std::vector<std::unique_ptr<gpu::GpuContext>> contexts_;
};

TEST_F(GpuPoolMemory, AWorkerThatWasRefusedAContextAsksAgainAndMapsWhatTheOthersHave) {
  auto memory = *contexts_[0]->Allocate(4 * kMiB);
  auto taken = TakeAllBut(kMiB, 1);  // less than a context takes
  WorkerPoolOptions options;
  options.gpu_retry_min_ms = milliseconds(100);
  options.gpu_retry_max_ms = milliseconds(200);
  Start(options);
  EXPECT_FALSE(Worker(0).gpu.empty());
  EXPECT_EQ(Worker(1).gpu, "");
  EXPECT_TRUE(Worker(1).asks_for_gpu);
  EXPECT_THAT(Worker(1).no_gpu_because, ::testing::AnyOf(::testing::HasSubstr("OUT_OF_MEMORY"),
                                                         ::testing::HasSubstr("OutOfMemory")));
  const auto mapped = pool_->Map(Source(*memory));
  ASSERT_TRUE(mapped) << mapped.error().message;
  EXPECT_EQ(Worker(1).mappings, 0U);
  std::this_thread::sleep_for(milliseconds(500));
  EXPECT_EQ(Worker(1).gpu, "") << "there is no room yet";
  EXPECT_TRUE(Worker(1).asks_for_gpu);
  const pid_t pid = Worker(1).pid;
  taken.reset();
  ASSERT_TRUE(Eventually([&] { return !Worker(1).gpu.empty(); }));
  EXPECT_EQ(Worker(1).pid, pid) << "jobs of the host's memory are not disturbed";
  EXPECT_EQ(Worker(1).restarts, 0U);
  EXPECT_EQ(Worker(1).mappings, 1U);
  EXPECT_FALSE(Worker(1).asks_for_gpu);
  EXPECT_EQ(Worker(1).no_gpu_because, "");
  EXPECT_EQ(pool_->gpu_of(1), 1);
  // It copies.
  const CopySegment segment = {*mapped, *mapped, 0, 2 * kMiB, 4096, 0, 0, 1};
  std::vector<uint8_t> bytes(4096, 7);
  ASSERT_TRUE(contexts_[0]->CopyFromHost(memory->range().base, bytes.data(), bytes.size()));
  ASSERT_TRUE(pool_->Post(1, 5, {&segment, 1}));
  Completion completion;
  while (pool_->Poll({&completion, 1}) == 0) std::this_thread::yield();
  EXPECT_TRUE(completion.ok);
  std::vector<uint8_t> copied(4096);
  ASSERT_TRUE(contexts_[0]->CopyToHost(copied.data(), memory->range().base + 2 * kMiB, 4096));
  EXPECT_EQ(copied, bytes);
}

TEST_F(GpuPoolMemory, GpusThatAllWorkersWereRefusedAreSeenLater) {
  std::vector<std::unique_ptr<gpu::GpuMemory>> taken;
  for (const size_t gpu : {0U, 1U}) taken.push_back(TakeAllBut(kMiB, gpu));
  WorkerPoolOptions options;
  options.gpu_retry_min_ms = options.gpu_retry_max_ms = milliseconds(100);
  Start(options);
  EXPECT_FALSE(pool_->gpus());
  EXPECT_EQ(pool_->GpuPlace(driver_->devices()[0].uuid), -1);
  EXPECT_EQ(pool_->PciAddressOf(driver_->devices()[0].uuid), "");
  taken.clear();
  EXPECT_TRUE(Eventually([&] { return !Worker(0).gpu.empty() && !Worker(1).gpu.empty(); }));
  ASSERT_TRUE(pool_->gpus());
  EXPECT_EQ(pool_->gpus()->size(), 2U);
  EXPECT_GE(pool_->GpuPlace(driver_->devices()[0].uuid), 0);
  for (const gpu::DeviceInfo& device : driver_->devices()) {
    EXPECT_EQ(pool_->PciAddressOf(device.uuid), device.pci_address);
  }
}

TEST_F(GpuPoolMemory, AWorkerThatHangsWhenItAsksAgainIsReplaced) {
  auto taken = TakeAllBut(kMiB, 1);
  WorkerPoolOptions options;
  options.gpu_retry_min_ms = milliseconds(300);
  options.map_timeout_ms = milliseconds(500);
  Start(options);
  const pid_t pid = Worker(1).pid;
  ASSERT_EQ(::kill(pid, SIGSTOP), 0);
  taken.reset();
  EXPECT_TRUE(Eventually([&] { return Worker(1).pid != pid && !Worker(1).gpu.empty(); }));
  EXPECT_EQ(Worker(1).restarts, 1U);
}

// The runtime asks the process of the exporter, which has freed the memory and never answers.
TEST_F(GpuPoolMemory, AnAttachOfFreedMemoryThatNeverReturnsEndsWithItsWorkers) {
  if (driver_->vendor() != "amd") GTEST_SKIP() << "an attach returns";
  ::setenv("HSA_ENABLE_IPC_MODE_LEGACY", "0", 1);
  WorkerPoolOptions options;
  options.map_timeout_ms = milliseconds(500);
  Start(options);
  auto stays = *contexts_[0]->Allocate(kMiB);
  auto goes = *contexts_[0]->Allocate(kMiB);
  const memory::AllocationSource gone = Source(*goes);
  goes.reset();
  const pid_t pids[] = {Worker(0).pid, Worker(1).pid};
  const TimePoint begin = Clock::now();
  const auto mapped = pool_->Map(gone);
  ASSERT_FALSE(mapped);
  EXPECT_LT(Clock::now() - begin, milliseconds(5'000));
  EXPECT_TRUE(Eventually([&] {
    return IsUsable(0) && IsUsable(1) && Worker(0).pid != pids[0] && Worker(1).pid != pids[1];
  }));
  EXPECT_TRUE(pool_->Map(Source(*stays))) << "what is there is mapped by their successors";
  ::unsetenv("HSA_ENABLE_IPC_MODE_LEGACY");
}

TEST_F(GpuPoolMemory, AWorkerThatGreetsWhileAnotherIsSetUpIsNotTakenForHung) {
  auto memory = *contexts_[0]->Allocate(kMiB);
  WorkerPoolOptions options;
  options.start_timeout_ms = milliseconds(1'000);
  options.map_timeout_ms = milliseconds(2'000);
  Start(options);
  ASSERT_TRUE(pool_->Map(Source(*memory)));
  DriverFails(kAttachHangs);
  Replace(0);
  ASSERT_EQ(::kill(Worker(0).pid, SIGSTOP), 0);
  DriverFails("");
  Replace(1);
  const pid_t pid = Worker(1).pid;
  ASSERT_EQ(::kill(pid, SIGSTOP), 0);  // both are awaited
  std::this_thread::sleep_for(milliseconds(50));
  ASSERT_EQ(::kill(Worker(0).pid, SIGCONT), 0);  // greets, and hangs over its mapping
  std::this_thread::sleep_for(milliseconds(300));
  ASSERT_EQ(::kill(pid, SIGCONT),
            0);  // in time, though it is heard only when the other is given up
  ASSERT_TRUE(Eventually([&] { return IsUsable(1); }));
  EXPECT_EQ(Worker(1).pid, pid);
  EXPECT_EQ(Worker(1).restarts, 1U);
}

// The owner gave one of two allocations back, which nobody has unmapped yet.
TEST_F(GpuPoolMemory, ANewWorkerThatCannotMapAllGpuMemoryHasNoGpuUntilItCan) {
  auto stays = *contexts_[0]->Allocate(kMiB);
  auto goes = *contexts_[0]->Allocate(kMiB);
  WorkerPoolOptions options;
  options.gpu_retry_min_ms = options.gpu_retry_max_ms = milliseconds(100);
  Start(options);
  ASSERT_TRUE(pool_->Map(Source(*stays)));
  const auto gone = pool_->Map(Source(*goes));
  ASSERT_TRUE(gone);
  goes.reset();
  Replace(1);
  ASSERT_TRUE(Eventually([&] { return IsUsable(1); }));
  const WorkerStatus without = Worker(1);
  EXPECT_EQ(without.gpu, "") << "jobs over what it lacks would fail";
  EXPECT_TRUE(Eventually([&] { return Worker(1).asks_for_gpu; }));
  EXPECT_TRUE(Eventually([&] { return !Worker(1).no_gpu_because.empty(); }));
  std::this_thread::sleep_for(milliseconds(400));  // it asks in vain, and is not ended for it
  EXPECT_EQ(Worker(1).pid, without.pid);
  EXPECT_TRUE(Eventually([&] {  // between two times that it asks
    const WorkerStatus now = Worker(1);
    return now.mappings == 0 &&
           now.no_gpu_because.find("could not map all GPU memory") != std::string::npos;
  }));
  ASSERT_TRUE(pool_->Unmap(*gone));
  ASSERT_TRUE(Eventually([&] { return !Worker(1).gpu.empty(); }));
  EXPECT_EQ(Worker(1).pid, without.pid);
  EXPECT_TRUE(Eventually([&] { return Worker(1).mappings == 1; }));
}

// Owners' PIDs are numbers of other namespaces: a new worker may have one of them.
TEST_F(GpuPoolMemory, ANewWorkerWithThePidOfAnOwnerIsReplacedAndCounted) {
  auto memory = *contexts_[0]->Allocate(kMiB);
  Start();
  pid_t last = ::fork();
  if (last == 0) ::_exit(0);
  ASSERT_GT(last, 0);
  ASSERT_EQ(::waitpid(last, nullptr, 0), last);
  memory::AllocationSource source = Source(*memory);
  constexpr int kPids = 150;  // one of which the next process has
  for (int i = 1; i <= kPids; ++i) {
    source.gpu.exporter_pid = last + i;
    ASSERT_TRUE(pool_->Map(source));
  }
  ASSERT_EQ(pool_->pid_conflicts(), 0U);
  Replace(1);
  ASSERT_TRUE(Eventually([&] { return IsUsable(1); }, milliseconds(60'000)));
  EXPECT_GE(pool_->pid_conflicts(), 1U);
  const pid_t pid = Worker(1).pid;
  EXPECT_TRUE(pid <= last || pid > last + kPids) << pid - last;
  EXPECT_EQ(Worker(1).mappings, static_cast<uint64_t>(kPids));
}

// Its predecessor had one: three starts are refused before it goes without, and nobody takes the
// GPUs for lost until then.
TEST_F(GpuPoolMemory, TheSuccessorOfAWorkerWithAGpuTriesForAWhile) {
  WorkerPoolOptions options;
  Start(options);
  DriverFails(kNoContext);
  Replace(1);
  ASSERT_TRUE(Eventually([&] { return IsUsable(1); }));
  EXPECT_EQ(Worker(1).gpu, "");
  EXPECT_TRUE(Worker(1).asks_for_gpu);
  EXPECT_GE(Worker(1).restarts, 4U);
  EXPECT_EQ(pool_->gpu_of(1), -1);
}

}  // namespace
}  // namespace gantry::worker

// This binary is also the copy worker that its pools start.
int main(int argc, char** argv) {
  if (gantry::worker::IsCopyWorker(argc, argv)) return gantry::worker::RunCopyWorker(argc, argv);
  const gantry::testing::FakeGpuFolder folder;
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
