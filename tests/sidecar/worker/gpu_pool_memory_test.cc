// Memory of GPUs that a pool maps in workers which hang, are refused or are replaced.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "sidecar/worker/pool/worker_pool.h"
#include "tests/fakes/test_arena.h"
#include "tests/sidecar/worker/gpu_pool_fixture.h"

namespace gantry::worker {
namespace {

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
TEST_F(GpuPoolMemory, AnAttachOfFreedMemoryThatNeverReturnsEndsWithItsWorker) {
  if (driver_->vendor() != "amd") GTEST_SKIP() << "an attach returns";
  ::setenv("HSA_ENABLE_IPC_MODE_LEGACY", "0", 1);
  WorkerPoolOptions options;
  options.map_timeout_ms = milliseconds(500);
  Start(options);
  auto stays = *contexts_[0]->Allocate(kMiB);
  auto goes = *contexts_[0]->Allocate(kMiB);
  const memory::AllocationSource gone = Source(*goes);
  goes.reset();
  const pid_t pid = Worker(0).pid;
  const pid_t other = Worker(1).pid;
  const TimePoint begin = Clock::now();
  const auto mapped = pool_->Map(gone);
  ASSERT_FALSE(mapped);
  EXPECT_LT(Clock::now() - begin, milliseconds(5'000));
  EXPECT_EQ(mapped.error().code, ErrorCode::kWorkerLost);
  EXPECT_TRUE(Eventually([&] { return IsUsable(0) && Worker(0).pid != pid; }));
  EXPECT_EQ(Worker(1).pid, other) << "it was not asked any more";
  EXPECT_TRUE(pool_->Map(Source(*stays))) << "what is there is mapped by its successor";
  ::unsetenv("HSA_ENABLE_IPC_MODE_LEGACY");
}

// Where the driver asks for it; the fake maps memory that is nobody's beside another's attach.
TEST_F(GpuPoolMemory, WorkersAttachOneAfterAnother) {
  if (!driver_->sharing().one_attach_at_a_time) GTEST_SKIP() << "they may attach at once";
  DriverFails("attaches_beside_others_are_wrong=1");
  WorkerPoolOptions options;
  options.workers = 4;
  Start(options);
  const auto memory = *contexts_[0]->Allocate(kMiB);
  memory::MemoryProbe probe;
  probe.length = static_cast<uint32_t>(probe.bytes.size());
  probe.bytes.fill('n');
  ASSERT_TRUE(contexts_[0]->CopyFromHost(memory->range().base, probe.bytes.data(), probe.length));
  const auto mapped = pool_->Map(Source(*memory));
  ASSERT_TRUE(mapped) << mapped.error().message;
  probe.mapping = *mapped;
  auto compared = pool_->Compare({&probe, 1});
  ASSERT_TRUE(compared);
  EXPECT_FALSE(compared->has_value()) << (*compared)->finder;
  for (const int worker : {1, 2}) Replace(worker);
  ASSERT_TRUE(Eventually([&] { return IsUsable(1) && IsUsable(2); }));
  compared = pool_->Compare({&probe, 1});
  ASSERT_TRUE(compared);
  EXPECT_FALSE(compared->has_value()) << "their successors, too: " << (*compared)->finder;
}

TEST_F(GpuPoolMemory, AHandleFromAnotherPodIsNotTriedWhereItMustStayInItsOwn) {
  Start();
  const auto memory = *contexts_[0]->Allocate(kMiB);
  memory::AllocationSource source = Source(*memory);
  source.of_peer = true;
  const auto mapped = pool_->Map(source);
  if (!driver_->sharing().handles_stay_in_pod) {
    ASSERT_TRUE(mapped) << mapped.error().message;
    return;
  }
  ASSERT_FALSE(mapped);
  EXPECT_EQ(mapped.error().code, ErrorCode::kPathUnavailable);
  EXPECT_EQ(Worker(0).maps_failed, 0U) << "no worker was asked";
  source.of_peer = false;
  EXPECT_TRUE(pool_->Map(source)) << "the own workload's";
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
  memory::AllocationSource source = Source(*memory);
  std::set<pid_t> owners;
  // Where others start many processes meanwhile, the worker's PID is none of these: again.
  for (int i = 0; i < 20 && pool_->pid_conflicts() == 0; ++i) {
    const pid_t last = ::fork();
    if (last == 0) ::_exit(0);
    ASSERT_GT(last, 0);
    ASSERT_EQ(::waitpid(last, nullptr, 0), last);
    for (pid_t next = last + 1; next <= last + 150; ++next) {  // the next process has one of them
      if (!owners.insert(next).second) continue;
      source.gpu.exporter_pid = next;
      ASSERT_TRUE(pool_->Map(source));
    }
    ASSERT_EQ(pool_->pid_conflicts(), 0U);
    Replace(1);
    ASSERT_TRUE(Eventually([&] { return IsUsable(1); }, milliseconds(60'000)));
  }
  EXPECT_GE(pool_->pid_conflicts(), 1U);
  EXPECT_FALSE(owners.contains(static_cast<pid_t>(Worker(1).pid)));
  EXPECT_EQ(Worker(1).mappings, owners.size());
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
