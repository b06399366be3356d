// Callers take turns in driving the engine while its own thread sleeps and wakes: real copy
// workers, some of which die. Nobody waits for ever, and every byte is where it should be.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "sidecar/copy/shm_transport.h"
#include "sidecar/transfer/transfer_engine.h"
#include "sidecar/worker/pool/worker_pool.h"
#include "tests/fakes/test_arena.h"

namespace gantry::engine {
namespace {

constexpr uint64_t kBlockBytes = 4096;
constexpr uint64_t kBlocks = 1024;  // of each caller
constexpr int kCallers = 4;
using gantry::testing::TestArena;

constexpr auto kPatience = std::chrono::seconds(30);

class EngineDriversTest : public ::testing::Test {
 protected:
  void SetUp() override {
    worker::WorkerPoolOptions options;
    options.workers = 2;
    options.restart_backoff_min_ms = milliseconds(1);
    auto pool = worker::WorkerPool::Create(options);
    ASSERT_TRUE(pool) << pool.error().message;
    pool_ = *std::move(pool);
    registry_ =
        std::make_unique<registry::BufferRegistry>(registry::RegistryLimits{}, *pool_, workloads_);
    std::vector<std::unique_ptr<transport::Transport>> transports;
    copies_ = std::make_unique<transport::CopyScheduler>(transport::CopySchedulerOptions{}, *pool_,
                                                         *pool_);
    transports.push_back(std::make_unique<transport::ShmTransport>(*copies_));
    engine_ =
        std::make_unique<TransferEngine>(EngineOptions{}, *pool_, copies_->hints(),
                                         std::move(transports), *registry_, events_, metrics_);
    Register("here", here_);
    Register("there", there_);
  }
  void TearDown() override { engine_.reset(); }

  void Register(const std::string& workload, const TestArena& arena) {
    const auto info = workloads_.Put(workload, "engine", 1000, std::nullopt);
    ASSERT_TRUE(info);
    std::vector<UniqueFd> fds;
    fds.push_back(arena.Fd());
    const auto tokens = workloads_.KeepFds(workload, info->generation, std::move(fds));
    ASSERT_TRUE(tokens);
    wire::RegistrationRequest request;
    request.workload = workload;
    request.allocations.push_back({wire::MemoryKind::kHost, tokens->front(), arena.size()});
    request.buffers.push_back({"kv", {{0, 0, arena.size()}}, {true, true}, std::nullopt});
    ASSERT_TRUE(registry_->Register(request));
  }

  static wire::TransferRequest BetweenBoth() {
    wire::TransferRequest request;
    request.workload = "here";
    request.local.push_back({"", "", "kv", 0});
    request.remote.push_back({"", "there", "kv", 0});
    return request;
  }

  // One block after the other. The ids are the caller's own.
  void Call(int caller) {
    for (uint64_t block = 0; block < kBlocks; ++block) {
      const uint64_t at = (static_cast<uint64_t>(caller) * kBlocks + block) * kBlockBytes;
      wire::TransferRequest request = BetweenBoth();
      request.id = std::to_string(caller) + "-" + std::to_string(block);
      request.ranges.push_back({0, at, 0, at, kBlockBytes});
      // Some wait, some come back for it.
      const bool waits = block % 4 != 0;
      auto status = engine_->Submit(request, waits ? Clock::now() + kPatience : TimePoint());
      if (status && !waits) {
        status = engine_->Get("here", request.id, Clock::now() + kPatience);
      }
      if (!status || status->state != TransferState::kSucceeded) ++failures_;
    }
    --calling_;
  }

  static constexpr uint64_t kMoved = kCallers * kBlocks * kBlockBytes;
  TestArena here_{kMoved, 0};
  TestArena there_{kMoved, 1};
  std::unique_ptr<worker::WorkerPool> pool_;
  std::unique_ptr<transport::CopyScheduler> copies_;
  registry::WorkloadTable workloads_{{}, [](const auto&, auto) {}};
  std::unique_ptr<registry::BufferRegistry> registry_;
  EventLog events_{1024};
  metrics::Metrics metrics_{"test"};
  std::unique_ptr<TransferEngine> engine_;
  std::atomic<int> failures_{0};
  std::atomic<int> calling_{kCallers};
};

TEST_F(EngineDriversTest, NobodyWaitsForEver) {
  const TimePoint start = Clock::now();
  std::vector<std::jthread> callers;
  for (int caller = 0; caller < kCallers; ++caller) {
    callers.emplace_back([this, caller] { Call(caller); });
  }
  std::jthread observer([this] {
    while (calling_ > 0) {
      engine_->List("", false, 10);
      engine_->Totals();
      std::this_thread::sleep_for(microseconds(300));
    }
  });
  for (int replaced = 0; calling_ > 0;) {
    std::this_thread::sleep_for(milliseconds(50));
    // The other one does the jobs that it had.
    const bool both_work = pool_->usable(0) && pool_->usable(1);
    if (both_work && replaced < 3) pool_->Replace(replaced++ % 2);
  }
  callers.clear();
  observer.join();
  EXPECT_EQ(failures_, 0);
  EXPECT_LT(Clock::now() - start, kPatience);
  EXPECT_TRUE(std::equal(here_.data(), here_.data() + kMoved, there_.data()));
  const EngineTotals totals = engine_->Totals();
  EXPECT_EQ(totals.queued + totals.running, 0u);
}

}  // namespace
}  // namespace gantry::engine
