#include "sidecar/copy/shm_transport.h"

#include <gtest/gtest.h>

#include "sidecar/worker/pool/worker_pool.h"
#include "tests/contracts/transport_contract.h"
#include "tests/fakes/fake_copy_pool.h"
#include "tests/sidecar/copy/pool_processes.h"
#include "tests/sidecar/worker/lone_driver.h"

namespace gantry::transport {
namespace {

using testing::TestArena;

// The shm transport over a pool, the same for both kinds of pool.
template <typename Pool>
class ShmHarness : public testing::TransportHarness {
 public:
  explicit ShmHarness(std::unique_ptr<Pool> pool)
      : pool_(std::move(pool)), copies_({}, *pool_, *pool_), transport_(copies_) {}

  Transport& transport() override { return transport_; }
  std::shared_ptr<const memory::MappedAllocation> Local(const TestArena& arena) override {
    memory::AllocationSource source;
    source.fd = std::make_shared<UniqueFd>(arena.Fd());
    source.size = arena.size();
    source.writable = true;
    return *memory::MappedAllocation::Create(*pool_, source);
  }
  RemoteAllocation Remote(const TestArena& arena) override { return {Local(arena)}; }
  void Wait() override { WaitAlone(*pool_, Clock::now() + milliseconds(20)); }

 protected:
  std::unique_ptr<Pool> pool_;
  CopyScheduler copies_;
  ShmTransport transport_;
};

class FakePoolHarness final : public ShmHarness<worker::FakeCopyPool> {
 public:
  FakePoolHarness() : ShmHarness(std::make_unique<worker::FakeCopyPool>(2)) {}
  void KillCarrier() override { pool_->Replace(0); }
  void HangCarrier() override { pool_->Hold(); }
};

class RealPoolHarness final : public ShmHarness<worker::WorkerPool> {
 public:
  RealPoolHarness() : ShmHarness(Pool()) {}
  void KillCarrier() override { worker::SignalWorkers(*pool_, SIGKILL, 1); }
  void HangCarrier() override { worker::StopWorkers(*pool_); }

 private:
  static std::unique_ptr<worker::WorkerPool> Pool() {
    worker::WorkerPoolOptions options;
    options.restart_backoff_min_ms = milliseconds(1);
    auto pool = worker::WorkerPool::Create(options);
    EXPECT_TRUE(pool) << pool.error().message;
    return *std::move(pool);
  }
};

using testing::TransportContract;
INSTANTIATE_TEST_SUITE_P(ShmOverFakePool, TransportContract,
                         ::testing::Values([] { return std::make_unique<FakePoolHarness>(); }));
INSTANTIATE_TEST_SUITE_P(ShmOverWorkerProcesses, TransportContract,
                         ::testing::Values([] { return std::make_unique<RealPoolHarness>(); }));

// What only this transport promises.
class ShmTransportTest : public ::testing::Test {
 protected:
  static std::shared_ptr<MovePlan> PlanOf(FakePoolHarness& harness, const TestArena& arena,
                                          uint64_t segments) {
    auto plan = std::make_shared<MovePlan>();
    plan->local = {harness.Local(arena)};
    plan->remote = {harness.Remote(arena)};
    for (uint32_t i = 0; i < segments; ++i) {
      MoveSegment segment;
      segment.length = 64;
      segment.local_offset = 128 * i;
      segment.remote_offset = 128 * i + 64;
      segment.first_item = i;
      plan->segments.push_back(segment);
      plan->bytes += 64;
    }
    return plan;
  }
};

TEST_F(ShmTransportTest, HigherPriorityGoesFirst) {
  worker::FakeCopyPool pool(1);
  CopySchedulerOptions options;
  options.inflight_jobs_max = 1;
  options.job_segments_max = 1;
  CopyScheduler copies(options, pool, pool);
  ShmTransport transport(copies);
  FakePoolHarness memory_of;
  TestArena arena(64 * 1024);
  memory::AllocationSource source;
  source.fd = std::make_shared<UniqueFd>(arena.Fd());
  source.size = arena.size();
  source.writable = true;
  auto mapped = *memory::MappedAllocation::Create(pool, source);
  const auto plan_at = [&](uint64_t offset) {
    auto plan = PlanOf(memory_of, arena, 4);
    plan->local = {mapped};
    plan->remote = {{mapped}};
    SegmentList moved;
    for (MoveSegment segment : plan->segments) {
      segment.local_offset += offset;
      moved.push_back(segment);
    }
    plan->segments = std::move(moved);
    return plan;
  };
  auto low = transport.Start(plan_at(0), -1, 1);
  auto high = transport.Start(plan_at(32 * 1024), 5, 2);
  std::vector<uint64_t> finished;
  while (finished.size() < 2) transport.Poll(&finished);
  EXPECT_EQ(finished, (std::vector<uint64_t>{2, 1}));
}

TEST_F(ShmTransportTest, SaysWhyItCannotReach) {
  FakePoolHarness harness;
  TestArena arena(4096);
  auto status = harness.transport().CanReach(*harness.Local(arena), RemoteAllocation{});
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kPathUnavailable);
  EXPECT_FALSE(status.error().message.empty());
}

}  // namespace
}  // namespace gantry::transport
