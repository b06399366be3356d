// What the pool must not accumulate: descriptors, memory, mappings, processor time.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <sstream>
#include <string>
#include <thread>

#include "sidecar/worker/pool/worker_pool.h"
#include "tests/fakes/test_arena.h"
#include "tests/sidecar/worker/lone_driver.h"

namespace gantry::worker {
namespace {

using ::gantry::testing::TestArena;

std::unique_ptr<WorkerPool> CreatePool(int workers = 2) {
  WorkerPoolOptions options;
  options.workers = workers;
  options.log_level = "error";
  options.restart_backoff_min_ms = milliseconds(1);
  options.restart_backoff_max_ms = milliseconds(1);
  auto pool = WorkerPool::Create(options);
  EXPECT_TRUE(pool) << pool.error().message;
  return std::move(*pool);
}

int64_t EntriesOf(const std::string& directory) {
  return std::distance(std::filesystem::directory_iterator(directory),
                       std::filesystem::directory_iterator());
}
int64_t LinesOf(const std::string& path) {
  std::ifstream file(path);
  return std::count(std::istreambuf_iterator<char>(file), {}, '\n');
}
int64_t ResidentKib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmRSS:")) return std::stoll(line.substr(6));
  }
  return 0;
}

// User and system time of a process, in clock ticks of 10 ms.
int64_t TicksOf(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  const std::string stat((std::istreambuf_iterator<char>(file)), {});
  std::istringstream fields(stat.substr(stat.rfind(')') + 2));
  std::string skipped;
  for (int i = 0; i < 11; ++i) fields >> skipped;
  int64_t user = 0;
  int64_t system = 0;
  fields >> user >> system;
  return user + system;
}

void KillAndAwaitReplacement(WorkerPool& pool, int worker) {
  const WorkerStatus before = pool.workers()[static_cast<size_t>(worker)];
  ASSERT_EQ(::kill(before.pid, SIGKILL), 0);
  const TimePoint limit = Clock::now() + std::chrono::seconds(30);
  Completion completion;
  while (Clock::now() < limit) {
    pool.Poll({&completion, 1});
    const WorkerStatus now = pool.workers()[static_cast<size_t>(worker)];
    if (now.restarts > before.restarts && now.state == WorkerState::kUsable) return;
    WaitAlone(pool, Clock::now() + milliseconds(20));
  }
  FAIL() << "no replacement";
}

TEST(WorkerPoolLimits, TwoHundredDeathsLeaveNothingBehind) {
  const TestArena memory(64 << 10);
  const auto pool = CreatePool();
  const auto id = pool->Map(memory.source()).value();
  for (int i = 0; i < 10; ++i) KillAndAwaitReplacement(*pool, i % 2);
  const int64_t descriptors = EntriesOf("/proc/self/fd");
  const int64_t maps = LinesOf("/proc/self/maps");
  const int64_t resident_kib = ResidentKib();
  for (int i = 0; i < 190; ++i) KillAndAwaitReplacement(*pool, i % 2);
  EXPECT_EQ(EntriesOf("/proc/self/fd"), descriptors);
  EXPECT_LE(LinesOf("/proc/self/maps"), maps + 8);
  // A ring is 400 KiB, so that they would be 76 MiB. AddressSanitizer keeps a while what was freed.
  EXPECT_LE(ResidentKib(), resident_kib + 32 * 1024);
  const CopySegment segment = {id, id, 0, 4096, 4096, 0, 0, 1};
  EXPECT_TRUE(pool->Post(0, 1, {&segment, 1}));
}

TEST(WorkerPoolLimits, AThousandMappingsComeAndGo) {
  const TestArena memory(16 << 10);
  const auto pool = CreatePool();
  const std::string worker = "/proc/" + std::to_string(pool->workers()[0].pid);
  // The first ones pay for what the allocator keeps.
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(pool->Unmap(pool->Map(memory.source()).value()));
  const int64_t our_descriptors = EntriesOf("/proc/self/fd");
  const int64_t descriptors = EntriesOf(worker + "/fd");
  const int64_t maps = LinesOf(worker + "/maps");
  uint32_t last_generation = 0;
  for (int i = 0; i < 1000; ++i) {
    const auto id = pool->Map(memory.source());
    ASSERT_TRUE(id);
    EXPECT_EQ(id->slot, 0U);
    EXPECT_GT(id->generation, last_generation);
    last_generation = id->generation;
    ASSERT_TRUE(pool->Unmap(*id));
  }
  EXPECT_EQ(EntriesOf("/proc/self/fd"), our_descriptors);
  EXPECT_EQ(EntriesOf(worker + "/fd"), descriptors);
  EXPECT_LE(LinesOf(worker + "/maps"), maps + 4);
}

TEST(WorkerPoolLimits, AnIdlePoolBurnsNoProcessorTime) {
  const TestArena memory(64 << 10);
  const auto pool = CreatePool();
  const auto id = pool->Map(memory.source()).value();
  const CopySegment segment = {id, id, 0, 4096, 4096, 0, 0, 1};
  ASSERT_TRUE(pool->Post(0, 1, {&segment, 1}));
  WaitAlone(*pool, Clock::now() + std::chrono::seconds(5));
  std::this_thread::sleep_for(milliseconds(50));
  int64_t before = TicksOf(::getpid());
  for (const WorkerStatus& worker : pool->workers()) before += TicksOf(worker.pid);
  Completion completion;
  const TimePoint end = Clock::now() + std::chrono::seconds(1);
  while (Clock::now() < end) {
    pool->Poll({&completion, 1});
    WaitAlone(*pool, end);
  }
  int64_t after = TicksOf(::getpid());
  for (const WorkerStatus& worker : pool->workers()) after += TicksOf(worker.pid);
  EXPECT_LE(after - before, 2) << "ticks of 10 ms within a second";
}

TEST(WorkerPoolLimits, WorkersHoldNoForeignDescriptorsAndHaveAName) {
  const UniqueFd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const int inherited = ::fcntl(null.get(), F_DUPFD, 100);  // not close-on-exec
  ASSERT_GE(inherited, 100);
  const auto pool = CreatePool(3);
  ::close(inherited);
  for (const WorkerStatus& worker : pool->workers()) {
    const std::string directory = "/proc/" + std::to_string(worker.pid);
    // Standard input, output and error; control socket, ring, doorbell.
    EXPECT_LE(EntriesOf(directory + "/fd"), 6);
    std::ifstream comm(directory + "/comm");
    std::string name;
    std::getline(comm, name);
    EXPECT_EQ(name, "gantry-copy-" + std::to_string(worker.index));
  }
}

}  // namespace
}  // namespace gantry::worker
