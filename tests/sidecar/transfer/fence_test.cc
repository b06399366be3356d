#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "tests/fakes/engine_fixture.h"
#include "tests/fakes/quick_path.h"

namespace gantry::engine {
namespace {

using testing::EngineFixture;
using testing::In;
using testing::TestArena;

constexpr uint64_t kFencedBytes = 1 << 20;

class FenceTest : public EngineFixture {
 protected:
  void SetUp() override {
    EngineFixture::SetUp();
    for (const char* name : {"a", "b"}) AddWorkload(name);
    ASSERT_TRUE(
        Register("a", {&local_}, {{"kv", {{0, 0, kFencedBytes}}, std::nullopt, {true, true}}}));
    ASSERT_TRUE(Register("a", {&counters_},
                         {{"clock", {{0, 0, 4096}}, std::nullopt, {true, true}},
                          {"shifted", {{0, 4, 64}}, std::nullopt, {true, true}},
                          {"torn", {{0, 0, 4}, {0, 8, 12}}, std::nullopt, {true, true}}}));
    ASSERT_TRUE(
        Register("b", {&remote_}, {{"kv", {{0, 0, kFencedBytes}}, std::nullopt, {true, true}}}));
    std::memset(counters_.data(), 0, counters_.size());
  }

  // A write of all bytes of a to b, once the counter has reached `value`.
  static wire::TransferRequest Fenced(const std::string& id, uint64_t value, uint64_t offset = 0,
                                      const std::string& buffer = "clock") {
    auto request = WithRange(Between("a", "kv", "b", "kv"), 0, 0, kFencedBytes);
    request.id = id;
    request.operation = wire::Operation::kWrite;
    request.fence = wire::TimelineFence{true, {"", "", buffer, 0}, offset, value};
    return request;
  }
  std::atomic_ref<uint64_t> Counter(uint64_t offset = 0) {
    return std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(counters_.data() + offset));
  }

  TestArena local_{kFencedBytes, 1};
  TestArena remote_{kFencedBytes, 2};
  TestArena counters_{8192, 3};
};

// Invariant 8: the bytes that were written before the counter are those that move.
TEST_F(FenceTest, BytesWrittenBeforeTheCounterArrive) {
  for (uint64_t round = 1; round <= 50; ++round) {
    std::memset(local_.data(), 0, kFencedBytes);
    auto submitted = engine_->Submit(Fenced("t" + std::to_string(round), round), In({}));
    ASSERT_TRUE(submitted) << submitted.error().message;
    EXPECT_EQ(submitted->state, TransferState::kQueued);
    std::thread writer([&] {
      if (round % 2 == 0) std::this_thread::sleep_for(milliseconds(2));
      std::memset(local_.data(), static_cast<int>(round), kFencedBytes);
      Counter().store(round, std::memory_order_release);
    });
    const auto ended = engine_->Get("a", "t" + std::to_string(round), In(milliseconds(10'000)));
    writer.join();
    ASSERT_TRUE(ended);
    ASSERT_EQ(ended->state, TransferState::kSucceeded);
    for (uint64_t i = 0; i < kFencedBytes; ++i) {
      ASSERT_EQ(remote_.data()[i], static_cast<uint8_t>(round)) << "byte " << i;
    }
    if (round % 2 == 0) {
      EXPECT_GE(ended->timings.fence_us, 1'000u);
      EXPECT_LE(ended->timings.fence_us, ended->timings.total_us);
    }
  }
}

// A caller drives for about 100 microseconds. The last round in which it does so may begin the
// transfer, and then nothing else wakes the engine's thread, which may sleep for a second.
TEST_F(FenceTest, ACounterThatRisesWhileACallerDrivesIsActedUponAtOnce) {
  engine_.reset();
  std::vector<std::unique_ptr<transport::Transport>> transports;
  transports.push_back(std::make_unique<testing::QuickPath>(wire::Path::kShm));
  engine_ = std::make_unique<TransferEngine>(engine_options_, pool_, copies_.hints(),
                                             std::move(transports), registry_, events_, metrics_);
  std::vector<uint64_t> slow;
  for (uint64_t round = 1; round <= 2000; ++round) {
    std::atomic<bool> submits = false;
    std::thread writer([&] {
      while (!submits) std::this_thread::yield();
      const TimePoint until = Clock::now() + microseconds(20 + round % 130);
      while (Clock::now() < until) std::this_thread::yield();
      Counter().store(round, std::memory_order_release);
    });
    submits = true;
    const auto ended =
        engine_->Submit(Fenced("t" + std::to_string(round), round), In(milliseconds(10'000)));
    writer.join();
    ASSERT_TRUE(ended) << ended.error().message;
    ASSERT_EQ(ended->state, TransferState::kSucceeded);
    if (ended->timings.total_us > 400'000) slow.push_back(ended->timings.total_us);
  }
  EXPECT_LE(slow.size(), 1u) << "a busy machine may delay one";
}

TEST_F(FenceTest, ACounterThatIsThereDoesNotHoldATransferUp) {
  Counter(8).store(7);
  for (const uint64_t value : {7, 6, 1}) {
    const auto ended =
        engine_->Submit(Fenced("t" + std::to_string(value), value, 8), In(milliseconds(5'000)));
    ASSERT_TRUE(ended);
    EXPECT_EQ(ended->state, TransferState::kSucceeded);
  }
  Counter(16).store(UINT64_MAX);
  EXPECT_EQ(engine_->Submit(Fenced("max", INT64_MAX, 16), In(milliseconds(5'000)))->state,
            TransferState::kSucceeded);
}

TEST_F(FenceTest, ExpiresAtTheDeadlineAndSaysWhatTheCounterIs) {
  Counter().store(4);
  auto request = Fenced("late", 5);
  request.deadline_ms = 300;
  const auto ended = engine_->Submit(request, In(milliseconds(5'000)));
  ASSERT_TRUE(ended);
  EXPECT_EQ(ended->state, TransferState::kExpired);
  ASSERT_TRUE(ended->error);
  EXPECT_EQ(ended->error->code, ErrorCode::kDeadlineExceeded);
  EXPECT_NE(ended->error->message.find("clock at 0 is 4, not 5"), std::string::npos)
      << ended->error->message;
  EXPECT_EQ(*ended->failed_items, (std::vector<uint32_t>{0}));
  EXPECT_EQ(ended->bytes_moved, 0u);
  EXPECT_GE(ended->timings.fence_us, 100'000u);  // the deadline counts from before admission
  EXPECT_LT(ended->timings.total_us, 3'000'000u);
  // No path failed: none was begun.
  EXPECT_NE(
      metrics_.Text().find("gantry_transport_errors_total{path=\"shm\",reason=\"timeout\"} 0\n"),
      std::string::npos);
}

TEST_F(FenceTest, WaitingBlocksNoOtherTransferAndCanBeCancelled) {
  ASSERT_TRUE(engine_->Submit(Fenced("waits", 1), In({})));
  auto other = WithRange(Between("a", "kv", "b", "kv"), 0, 0, kFencedBytes);
  const auto moved = engine_->Submit(other, In(milliseconds(5'000)));
  ASSERT_TRUE(moved);
  EXPECT_EQ(moved->state, TransferState::kSucceeded);
  EXPECT_EQ(engine_->Totals().queued, 1u);
  const auto cancelled = engine_->Cancel("a", "waits", In(milliseconds(5'000)));
  ASSERT_TRUE(cancelled);
  EXPECT_EQ(cancelled->state, TransferState::kCancelled);
  EXPECT_EQ(cancelled->bytes_moved, 0u);
  Counter().store(1);
  EXPECT_EQ(engine_->Get("a", "waits", In({}))->state, TransferState::kCancelled);
}

TEST_F(FenceTest, TheEndOfTheWorkloadEndsTheWait) {
  ASSERT_TRUE(engine_->Submit(Fenced("waits", 1), In({})));
  engine_->StopTransfersOf("a", 0, Error(ErrorCode::kCancelled, "workload 'a' ended"));
  for (int i = 0; i < 1'000 && engine_->Totals().queued > 0; ++i) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_EQ(engine_->Totals().queued, 0u);
}

TEST_F(FenceTest, RefusesACounterThatCannotBeRead) {
  const auto refused = [&](const wire::TransferRequest& request) {
    const auto result = engine_->Submit(request, In({}));
    if (result) return std::string("accepted");
    return std::string(InfoOf(result.error().code).name) + " " + result.error().field;
  };
  EXPECT_EQ(refused(Fenced("1", 1, 0, "none")), "unregistered /fence/buffer");
  EXPECT_EQ(refused(Fenced("2", 1, 4096 - 7)), "out_of_range /fence/offset");
  EXPECT_EQ(refused(Fenced("3", 1, UINT64_MAX)), "out_of_range /fence/offset");
  EXPECT_EQ(refused(Fenced("4", 1, 12)), "invalid_argument /fence/offset");
  EXPECT_EQ(refused(Fenced("5", 1, 0, "shifted")), "invalid_argument /fence/offset");
  EXPECT_EQ(refused(Fenced("6", 1, 0, "torn")), "invalid_argument /fence/offset");
  auto stale = Fenced("7", 1);
  stale.fence->buffer.generation = 1;
  EXPECT_EQ(refused(stale), "stale_generation /fence/buffer");
  EXPECT_EQ(engine_->Submit(Fenced("8", 1, 4, "shifted"), In({}))->state, TransferState::kQueued);
}

// A thousand long waits take a few percent of one core.
TEST_F(FenceTest, LongWaitsCostLittle) {
  for (int i = 0; i < 1'000; ++i) {
    ASSERT_TRUE(engine_->Submit(Fenced("t" + std::to_string(i), 1), In({})));
  }
  std::this_thread::sleep_for(milliseconds(100));
  const auto used = [] {
    rusage usage = {};
    ::getrusage(RUSAGE_SELF, &usage);
    return milliseconds(1'000 * (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                        (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1'000);
  };
  const milliseconds before = used();
  std::this_thread::sleep_for(milliseconds(1'000));
  EXPECT_LT((used() - before).count(), 250);
  Counter().store(1);
  for (int i = 0; i < 1'000; ++i) {
    EXPECT_EQ(engine_->Get("a", "t" + std::to_string(i), In(milliseconds(20'000)))->state,
              TransferState::kSucceeded);
  }
}

}  // namespace
}  // namespace gantry::engine
